#!/bin/busybox sh
# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=dash disable=SC2154 # the kernel makes rds_*=... of its command line variables
# The first process of a guest: turns the host's read-only files into a usable system, then runs the
# agent. rds_rundir comes from the kernel's command line: the directory shared for writing.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
bb() { /bin/busybox "$@"; }

bb mount -t proc proc /proc
bb mount -t sysfs sysfs /sys
bb mount -t devtmpfs dev /dev 2>/dev/null # DEVTMPFS_MOUNT may have done it
bb mkdir -p /dev/pts /dev/shm
bb mount -t devpts -o ptmxmode=666 devpts /dev/pts
bb mount -t tmpfs tmpfs /dev/shm
bb ln -sf /proc/self/fd /dev/fd
bb ln -sf /proc/self/fd/0 /dev/stdin
bb ln -sf /proc/self/fd/1 /dev/stdout
bb ln -sf /proc/self/fd/2 /dev/stderr
bb mount -t debugfs debugfs /sys/kernel/debug
bb mount -t tracefs tracefs /sys/kernel/tracing
bb mount -t cgroup2 cgroup2 /sys/fs/cgroup
# The checkout and the modules may be below a directory that gets its own file system here.
top=${rds_agent%/scripts/rdsvm/*}
bb mkdir /dev/shm/top /dev/shm/modules
bb mount --bind "$top" /dev/shm/top
bb mount --bind "$rds_modules" /dev/shm/modules
for dir in /tmp /run /var/tmp /mnt; do
	bb mount -t tmpfs tmpfs "$dir"
done
restore() {
	[ -d "$2" ] || { bb mkdir -p "$2" && bb mount --bind "$1" "$2"; }
	bb umount "$1" && bb rmdir "$1"
}
restore /dev/shm/top "$top"
restore /dev/shm/modules "$rds_modules"
bb mkdir -p "$rds_rundir" || exit 1
bb mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000 rundir "$rds_rundir" || exit 1
# The kernel's modules are not below the host's /lib/modules, but below a separate root.
if [ "$rds_modules" != / ]; then
	bb mkdir /run/bin
	printf '#!/bin/sh\nexec /sbin/modprobe -d %s "$@"\n' "$rds_modules" >/run/bin/modprobe
	bb chmod 755 /run/bin/modprobe
	echo /run/bin/modprobe >/proc/sys/kernel/modprobe
fi
bb hostname "$rds_name"
bb ip link set lo up
/usr/bin/python3 -ISB "$rds_agent"
echo o >/proc/sysrq-trigger
bb sleep 60
