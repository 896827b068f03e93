#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# Tests RDS between two addresses of RDMA adapters, usually of two hosts, and writes one report.
# Needs neither a virtual machine nor the source tree: only the loaded module and the tools on both
# hosts.
set -uo pipefail

usage() {
	cat <<END
Usage: two-hosts.sh [OPTIONS] HERE THERE REPORT

HERE and THERE are addresses of RDMA adapters, of this host and of the other one. The folder REPORT
is created; REPORT/report.txt has the results.

  -r COMMAND   runs its last argument on the other host, as root: "ssh root@host"
               [default: sh -c, for two adapters of this host]
  -b FOLDER    rds-ping, rds-verify, rds-stress and rds-info on both hosts [default: search PATH]
  -s SECONDS   duration of each run of rds-stress [default: 10]
  -n COUNT     messages of each verified stream [default: 2000]
  -p PORT      first of 40 free ports [default: 4100]

Disturbances, which run on this host during verified traffic. Each may be given several times:

  -u PCI       unbinds the driver of an adapter, such as 0000:3b:00.0, and binds it again
  -l NETDEV    sets a network interface down for 5 s
  -f NETDEV    moves HERE to another interface of this host (failover), and back
  -x COMMAND   runs any command

The exit status is 0 if every step passed, 1 if not, 2 if the command line is invalid.
END
}

remote=(sh -c)
bin="" seconds=10 count=2000 port=4100
disturbances=()
while getopts "r:b:s:n:p:u:l:f:x:h" option; do
	case $option in
	r) read -ra remote <<<"$OPTARG" ;;
	b) bin=$(realpath "$OPTARG")/ ;;
	s) seconds=$OPTARG ;;
	n) count=$OPTARG ;;
	p) port=$OPTARG ;;
	u | l | f | x) disturbances+=("$option$OPTARG") ;;
	h) usage; exit 0 ;;
	*) usage >&2; exit 2 ;;
	esac
done
shift $((OPTIND - 1))
[ $# = 3 ] || { usage >&2; exit 2; }
here=$1 there=$2 out=$3
mkdir -p "$out" || exit 2
report=$out/report.txt
: >"$report"
failed=0 passed=0 step=0

with_port() { case $1 in *:*) echo "[$1]:$2" ;; *) echo "$1:$2" ;; esac; }
say() { printf '%s\n' "$*" | tee -a "$report"; }

# verdict NAME STATUS FILE...: reports a step. The end of its output is in the report if it failed.
verdict() {
	local name=$1 status=$2
	shift 2
	if [ "$status" = 0 ]; then
		passed=$((passed + 1))
		say "PASS  $name"
	else
		failed=$((failed + 1))
		say "FAIL  $name (status $status)"
		tail -n 20 "$@" 2>/dev/null | sed 's/^/      /' >>"$report"
	fi
}

# Sets $log to a new file for the output of a step.
new_log() { step=$((step + 1)); log=$out/$(printf '%02d' "$step")-$1; }

# alone NAME COMMAND...: a step on this host.
alone() {
	local name=$1 log
	shift
	new_log "${name// /-}"
	"$@" >"$log" 2>&1 </dev/null
	verdict "$name" $? "$log"
}

on_other() { "${remote[@]}" "$1" </dev/null; }

# together NAME OTHER COMMAND...: the command line OTHER runs on the other host meanwhile.
together() {
	local name=$1 other=$2 log status pid
	shift 2
	new_log "${name// /-}"
	on_other "$other" >"$log.other" 2>&1 &
	pid=$!
	"$@" >"$log" 2>&1 </dev/null
	status=$?
	wait "$pid" || status=$?
	verdict "$name" "$status" "$log" "$log.other"
}

# verify NAME OPTION...: verified streams in both directions.
verify() {
	local name=$1 mine theirs
	shift
	mine=$(with_port "$here" "$port") theirs=$(with_port "$there" $((port + 16)))
	together "$name" "${bin}rds-verify both --bind '$theirs' --to '$mine' --timeout 120 $*" \
		"${bin}rds-verify" both --bind "$mine" --to "$theirs" --timeout 120 "$@"
}

stress() {
	local name=$1
	shift
	together "$name" "${bin}rds-stress -r '$there' -p $((port + 32))" \
		"${bin}rds-stress" -r "$here" -s "$there" -p $((port + 32)) --connect-retries 30 -T "$seconds" "$@"
}

# One part of a disturbance must not leave the adapter away, so each ends with the old state.
disturb() {
	local how=${1:0:1} what=${1:1} driver from
	case $how in
	u)
		driver=$(realpath "/sys/bus/pci/devices/$what/driver") || return
		echo "$what" >"$driver/unbind" && sleep 5
		echo "$what" >"$driver/bind"
		;;
	l)
		ip link set "$what" down && sleep 5
		ip link set "$what" up
		;;
	f)
		from=$(ip -o addr show to "$here" | awk '{ print $2; exit }')
		[ -n "$from" ] || return
		move "$from" "$what" && sleep 5
		move "$what" "$from"
		;;
	x) sh -c "$what" ;;
	esac
}

move() {
	local prefix
	prefix=$(ip -o addr show dev "$1" to "$here" | grep -o "$here/[0-9]*")
	ip addr del "$prefix" dev "$1" && ip addr add "$prefix" dev "$2" &&
		arping -q -c 2 -A -I "$2" "$here" >/dev/null 2>&1
	ip -o addr show dev "$2" to "$here" | grep -q "$here"
}

# disturbed DISTURBANCE: the traffic goes on until the disturbance is over, and once more after it.
disturbed() {
	local name log status=0 runs=0 pid
	name="disturbance -${1:0:1} ${1:1}"
	new_log "disturbance"
	(sleep 2; disturb "$1") >"$log" 2>&1 </dev/null &
	pid=$!
	while kill -0 "$pid" 2>/dev/null; do
		runs=$((runs + 1))
		verify "traffic during $name, $runs" --count "$count" --sizes 1..65536
	done
	wait "$pid" || status=$?
	verdict "$name" "$status" "$log"
	verify "traffic after $name" --count "$count"
}

state() {
	echo "== $(uname -n), $(uname -r)"
	cat /sys/module/rds_rust/version 2>/dev/null
	rdma link show
	lspci -nn 2>/dev/null | grep -i -e infiniband -e ethernet
	"${bin}rds-info" -an
	"${bin}rds-info" -I
	"${bin}rds-info" -c
	cat /sys/kernel/debug/swiotlb/io_tlb_used /sys/kernel/debug/dma-api/error_count 2>/dev/null
}
other_state="bin='$bin'; $(declare -f state); state"

# Counters that real adapters may raise, and that should stay. operations.md explains them.
counted() { "${bin}rds-info" -c | awk '$1 ~ /^(ib_rx_misused|ib_not_flushed|ib_completion_out_of_order|ib_pool_refused_limit|ib_tx_watchdog_timeout)$/'; }
complaints() { dmesg | grep -c -E 'WARNING:|BUG:|DMA-API:|INFO: task|Oops' || true; }
other_complaints="$(declare -f complaints); complaints"

say "RDS between $here and $there"
state >"$out/before-here.txt" 2>&1
on_other "$other_state" >"$out/before-there.txt" 2>&1
counters_before=$(counted)
here_before=$(complaints) there_before=$(on_other "$other_complaints")

alone "pings there" "${bin}rds-ping" -c 5 -i 0.1 -I "$here" "$there"
together "pings back" "${bin}rds-ping -c 5 -i 0.1 -I '$there' '$here'" true
# Without a connection nothing else can pass.
[ "$failed" = 0 ] || { say "$passed passed, $failed failed"; exit 1; }
for sizes in boundary mixed 0 64 1..4096 4097..65536; do
	verify "messages of $sizes bytes" --count "$count" --sizes "$sizes"
done
verify "messages of 1 MiB" --count $((count / 20 + 1)) --sizes 1048576
verify "eight sockets" --count $((count / 8 + 1)) --sockets 8
for size in 64 4K 64K 1M; do
	stress "rds-stress of $size" -q "$size" -t 2 -d 4
done
stress "RDMA writes and reads" -q 256 -D 64K -t 2 -d 4
stress "RDMA with unaligned memory" -q 256 -D 16K -I 4 --rdma-alignment 16 -t 2 -d 2
stress "RDMA with RDS_GET_MR" -q 256 -D 64K --rdma-use-get-mr 1 -t 2 -d 2
stress "atomics" -q 256 --atomics -t 2 -d 2
for one in "${disturbances[@]}"; do
	disturbed "$one"
done

state >"$out/after-here.txt" 2>&1
on_other "$other_state" >"$out/after-there.txt" 2>&1
"${bin}rds-info" --report "$out/here.tar" >/dev/null 2>&1
dmesg >"$out/dmesg-here.txt"
on_other dmesg >"$out/dmesg-there.txt"
[ "$(complaints)" = "$here_before" ]
verdict "the kernel log here" $? "$out/dmesg-here.txt"
[ "$(on_other "$other_complaints")" = "$there_before" ]
verdict "the kernel log there" $? "$out/dmesg-there.txt"
say "counters before: $(echo "$counters_before" | xargs)"
say "counters after:  $(counted | xargs)"
say "$passed passed, $failed failed"
[ "$failed" = 0 ]
