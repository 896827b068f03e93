# SPDX-License-Identifier: GPL-2.0
"""RDS over TCP and within the node in network namespaces, and the end of these.

The namespaces of a machine are its nodes, with veth pairs between them.
"""

import errno
import json
import socket

import pytest
from probes import TRACING, Probes
from spaces import Spaces
from traffic import RDS_TCP_PORT, counters, exchange, messages, ping, ports, wait_for, wait_until

pytestmark = [pytest.mark.impls("rust"), pytest.mark.kinds("rxe")]

LOOP = "127.0.0.1"
SETTINGS = "/proc/sys/net/rds"
INIT_NETWORK = "10.79.0"
# The end of a namespace for RDS, and of a connection that TCP gives up. A socket has its namespace
# at a fixed place.
END = "rds_rust:pernet_pre_exit"
GIVEN_UP = "tcp_done_with_error net=+48($arg1):x64 error=$arg2:s32"
# Most bytes of a buffer in a namespace of a user. For windows below 1 MiB.
USER_BUFFER, MOST_SCALE = 256 << 10, 4
# Sockets of peers that wait in all namespaces of users.
MOST_OF_USERS = 256
# A socket that is read: its ports and flags, which have fixed places, and all words in which its
# buffers may be.
ARRAYS, BYPASS = [f"part{index}" for index in range(6)], 0x80
READ = " ".join(("tcp_recvmsg to=+12($arg1):u16 port=+14($arg1):u16 flags=+19($arg1):u8", *(
    f"{name}=+{256 * index}($arg1):u32[64]" for index, name in enumerate(ARRAYS))))
# Sizes of the receive buffers of known sockets. Their send buffers have 2 bytes more.
KNOWN = (1234568, 2345678)


@pytest.fixture
def spaces(node, load):
    """The module with TCP, and a maker of namespaces."""
    load("tcp=1")
    made = Spaces(node)
    yield made
    made.close()


def lose_all(space, netdev):
    """Loses all packets that go out through a network device of a namespace."""
    space.run(f"tc qdisc add dev {netdev} root netem loss 100%")


def setting(space, name, value=None):
    if value is not None:
        space.run(f"echo {value} >{SETTINGS}/{name}")
    return int(space.run(f"cat {SETTINGS}/{name}").out)


def test_ping_both_ways(spaces, tools):
    ends = spaces.pair()
    for (space, own), (_, peer) in (ends, ends[::-1]):
        ping(tools, space, peer, own)


@pytest.mark.parametrize("version", (4, pytest.param(6, marks=pytest.mark.long("debug"))))
def test_streams(spaces, tools, flavor, version):
    (left, _), (right, _) = ends = spaces.pair()
    if version == 6:
        ends = [(left, "fd80::1"), (right, "fd80::2")]
    exchange(tools, *ends, count=messages(flavor, 400), sockets=4)


@pytest.mark.parametrize("segment", (0, 100))
def test_unread_long_messages(spaces, guest, segment):
    """Payload stays in the packets in which it arrived until it is read, if it has at least half of
    their memory. The payload of short segments is copied. So the reader is charged for all that his
    messages hold."""
    count, size = (5, 60001) if segment else (12, 200001)
    (left, host), (right, peer) = spaces.pair()
    if segment:
        # TCP may send several of them together, but not more than this.
        left.run(f"ip link set v-left gso_max_segs 1 mtu {segment + 40}")
    port = ports()
    reading = right.start(["python3", guest / "tcp_long.py", "read", peer, port, count, size])
    reading.expect("^ready$")
    before = counters(right, guest)
    sending = left.start(["python3", guest / "tcp_long.py", "send", host, peer, RDS_TCP_PORT, port, count, size,
                          segment])
    sending.expect("^sent$")
    now = wait_for(right, guest, lambda now: now["recv_queued"] == before["recv_queued"] + count)
    parts = now["tcp_rx_in_packets"] - before["tcp_rx_in_packets"]
    reading.write("\n")
    taken = int(reading.expect(r"^(\d+)$")[1])
    reading.wait(120, check=True)
    sending.write("\n")
    sending.wait(60, check=True)
    assert count * size < taken < 2 * count * size + count * 20000, taken
    assert parts == 0 if segment else parts > 0, parts
    # All of it is free again.
    assert counters(right, guest)["recv_bytes_freed_fromsock"] - before["recv_bytes_freed_fromsock"] == taken


def test_loop(spaces, tools, flavor):
    """Messages of a namespace to itself need no listener and no device."""
    (space, host), _ = spaces.pair()
    for address in (LOOP, host):
        ping(tools, space, address, address)
        exchange(tools, (space, address), (space, address), count=messages(flavor, 200))


def test_apart(spaces, node, tools, guest):
    """Namespaces see neither connections, counters nor settings of each other."""
    (left, host), (right, peer) = spaces.pair()
    third, = spaces.make("third")
    usual = {x.name: counters(x, guest) for x in (third, node)}
    ping(tools, left, peer, host)
    seen = counters(left, guest)
    assert seen["send_queued"] >= 3 and seen["tcp_data_ready_calls"] > 0, seen
    assert counters(right, guest)["recv_ping"] >= 3
    # All have the same counters, in the same order.
    assert list(seen) == list(usual["third"]) == list(usual[node.name])
    for other in (third, node):
        now = counters(other, guest)
        # The counters of pools are those of the machine, which only the initial namespace shows.
        rose = {x for x in now if now[x] != usual[other.name][x] and "pool" not in x and x != "ib_rx_total_frags"}
        assert not rose, (other.name, rose)
    program = "import info; print(__import__('json').dumps(info.rows(info.CONNECTIONS, False)))"
    for space, count in ((left, 1), (right, 1), (third, 0), (node, 0)):
        found = json.loads(space.run(["env", f"PYTHONPATH={guest}", "python3", "-c", program]).out)
        assert len(found) == count, (space.name, found)
    assert setting(left, "ping_enable", 0) == 0
    assert setting(left, "tcp/rds_tcp_rcvbuf", 10000) == 10000
    for other in (right, third, node):
        assert (setting(other, "ping_enable"), setting(other, "tcp/rds_tcp_rcvbuf")) == (1, 0), other.name
    # Those of devices are of the machine.
    assert left.run(f"ls {SETTINGS}/ib", check=False).status != 0


def test_ports_apart(spaces, guest):
    """Sockets of two namespaces have the same address and port."""
    bound = ("import rds, sys; s = rds.Sock(('10.80.0.1', 4000)); print(s.transport(), flush=True); sys.stdin.read()")
    (left, _), (right, _) = spaces.pair()
    right.run("ip addr add 10.80.0.1/32 dev lo")
    held = [x.start(["env", f"PYTHONPATH={guest}", "python3", "-c", bound]) for x in (left, right)]
    for process in held:
        process.expect("^tcp$")
    for process in held:
        process.finish()


def test_end_under_traffic(spaces, node, tools, guest):
    """A namespace ends while messages for it and from it are on their way."""
    (left, host), (_, peer) = spaces.end_under_traffic(tools, guest, sockets=4)
    ping(tools, left, peer, host)


def test_both_of_two_end(spaces, tools):
    """Two namespaces with a connection between them do not keep each other."""
    (left, host), (right, peer) = spaces.pair()
    ping(tools, left, peer, host)
    spaces.await_gone(left, right)


# A program with a socket at the first address, and 20 messages to the second one.
SEND = """
import rds, socket, sys
s = rds.Sock((sys.argv[1], 0))
for _ in range(20):
    s.send(bytes(1000), (sys.argv[2], 4000), socket.MSG_DONTWAIT)
print("sent", flush=True)
sys.stdin.read()
"""


def fields_of(text):
    """Returns the recorded arguments of a call by name."""
    return dict(x.split("=") for x in text.split())


def ends_and_errors(probes):
    """Returns how many namespaces have ended for RDS, and the errors with which TCP has ended their
    sockets meanwhile."""
    ending, count, errors = None, 0, []
    for name, text in probes.calls():
        fields = fields_of(text)
        if name == "pernet_pre_exit":
            ending = fields["net"]
        elif name == "pernet_pre_exit_returns":
            ending, count = None, count + 1
        elif name == "tcp_done_with_error" and fields["net"] == ending:
            errors.append(int(fields["error"]))
    return count, errors


@pytest.mark.parametrize("state", ("syn-sent", "syn-recv", "established"))
def test_end_half_open(spaces, tools, guest, state):
    """A namespace ends while its peer answers nothing: to a request to connect, to an answer to
    one, and to data. The end does not wait until TCP gives the peer up."""
    (left, host), (right, peer) = spaces.pair()
    # Otherwise the connection would end by itself before the test gives up.
    for space in (left, right):
        setting(space, "keepalive_secs", 3600)
    if state == "established":
        ping(tools, left, peer, host)
    # So that each knows the link address of the other one, also if that does not answer for long.
    for space, other, address in ((left, right, peer), (right, left, host)):
        link = json.loads(other.run(f"ip -j link show v-{other.name}").out)[0]["address"]
        space.run(f"ip neigh replace {address} lladdr {link} dev v-{space.name} nud permanent")
    # The left node has the lower address, so the connection of the right one only wakes it up.
    sender, source, target, mute = (right, peer, host, left) if state == "syn-recv" else (left, host, peer, right)
    lose_all(mute, f"v-{mute.name}")
    program = sender.start(["env", f"PYTHONPATH={guest}", "python3", "-c", SEND, source, target])
    program.expect("^sent$")

    def sockets():
        """Returns the sockets of the left namespace in the state, with bytes on their way if up."""
        lines = left.run(f"ss -Htn state {state} '( sport = :16385 or dport = :16385 )'").out.splitlines()
        return [x for x in lines if state != "established" or int(x.split()[1]) > 0]

    wait_until(sockets, lambda: left.run("ss -tan").out)
    program.stop()
    with Probes(spaces.node, f"{END} net=$arg1:x64", GIVEN_UP, returns=(END,)) as probes:
        spaces.await_gone(left)
        count, errors = ends_and_errors(probes)
        assert count == 1 and not {errno.ETIMEDOUT, errno.EHOSTUNREACH} & set(errors), errors
    spaces.await_gone(right)


def test_end_with_writers_of_settings(spaces, node, guest):
    """Programs of another namespace have the files of the settings open, and write them."""
    (left, _), (right, _) = spaces.pair()
    writers = [node.start(["python3", guest / "netns_settings.py", f"/run/netns/{x.name}"]) for x in (left, right)]
    for writer in writers:
        writer.expect("^writing$")
    spaces.await_gone(left, right)
    for writer in writers:
        # The files have gone, too.
        assert writer.wait(60).out.split()[-1] == "ENOENT", writer.out


def test_unload_and_load(spaces, node, tools, load):
    """Namespaces outlive the module, and have RDS again when it is loaded."""
    ends = (left, host), (right, peer) = spaces.pair()
    ping(tools, left, peer, host)
    load("tcp=1")
    ping(tools, left, peer, host)
    exchange(tools, *ends, count=20)
    load()
    assert left.run(f"ls {SETTINGS}/tcp", check=False).status != 0
    ping(tools, left, LOOP, LOOP)


def test_limits_of_all(spaces, node, guest, load):
    """All namespaces but the initial one have a limit. A user of one of root leaves room to users
    of others, which may be containers whose programs run as root, too."""
    load("tcp=1", "max_conns=256")
    ends = spaces.pair()

    def strangers(where, host):
        program = where.start(["python3", guest / "limits.py", "strangers", host, 100])
        program.expect("^{")
        return json.loads(program.out), program

    for space, host in ends:
        space.run(f"ip route add 10.77.0.0/16 dev v-{space.name}")
    # All of these namespaces have half of the limit, one user half of that, and the next one half
    # of the rest.
    (first, held), (second, also) = [strangers(*x) for x in ends]
    assert first == {"ok": 64, "ENOMEM": 36}
    assert second == {"ok": 32, "ENOMEM": 68}
    # A network of its own, as that of RDMA has no TCP.
    own = f"{INIT_NETWORK}.1"
    node.run(f"ip link add v-init type veth peer name v-mute && ip addr add {own}/24 dev v-init && "
             "ip link set v-init up && ip link set v-mute up && ip route add 10.77.0.0/16 dev v-init")
    initial, too = strangers(node, own)
    assert initial == {"ok": 100}
    for program in (held, also, too):
        program.stop()
    node.run("ip link del v-init")


@pytest.mark.long("debug")
def test_waiting_sockets_of_all(spaces, node, guest, load):
    """Sockets of peers that wait in all namespaces of users have one limit, and give their room
    back. Those in namespaces of root have room beside them."""
    load("tcp=1", "max_conns=1")
    (left, host), (right, peer) = spaces.pair()
    # One more namespace has the peers.
    many, each = 18, 16
    # A connection to the stranger takes the room of the program, once that has ended.
    for has_stranger in (False, True):
        before = spaces.gone()
        program = node.start(["python3", guest / "netns_waiting.py", many, MOST_OF_USERS])
        told = json.loads(program.expect("^{.*}$")[0])
        assert told == {"open": MOST_OF_USERS, "counted": many * each - MOST_OF_USERS}
        if has_stranger:
            stranger = left.start(["python3", guest / "tcp_parked.py", peer, RDS_TCP_PORT, 1, host])
            stranger.expect("^sent$")
            # It is kept, as there is no room for a connection.
            now = wait_for(right, guest, lambda now: now["conn_refused_limit"] > 0)
            assert (now["tcp_listen_refused"], now["tcp_listen_lost"]) == (0, 0)
            stranger.finish()
        program.finish()
        wait_until(lambda: spaces.gone() == before + many + 1, spaces.gone)


def sockets_read(probes):
    """Returns the TCP sockets that were read: (ports, whether it bypasses the accounts, words)."""
    found = []
    for name, text in probes.calls():
        if name != "tcp_recvmsg":
            continue
        fields = fields_of(text)
        words = [int(x) for name in ARRAYS for x in fields[name].strip("{}").split(",")]
        ports = int(fields["port"]), socket.ntohs(int(fields["to"]))
        found.append((ports, int(fields["flags"]) & BYPASS != 0, words))
    return found


@pytest.mark.parametrize("most", (None, 131072))
def test_namespace_of_a_user(node, guest, spaces, most):
    """A user's own namespace has no listener before its first socket. The settings there, of RDS
    and of TCP, do not decide about the memory of sockets. Those of the machine do."""
    limits = "/proc/sys/net/core/rmem_max", "/proc/sys/net/core/wmem_max"
    usual = node.run(["cat", *limits]).out.split()
    if most:
        node.run(f"echo {most} | tee {' '.join(limits)}")
    try:
        with Probes(node, READ) as probes:
            program = node.start(["python3", guest / "netns_user.py", *KNOWN])
            told = json.loads(program.expect("^{.*}$")[0])
            sockets = sockets_read(probes)
            program.finish()
    finally:
        for file, value in zip(limits, usual):
            node.run(f"echo {value} >{file}")
    assert told.pop("scale") <= MOST_SCALE
    assert told == {"before": [], "after": ["16385"], "transport": "tcp"}, told
    known = [(bypasses, words) for ports, bypasses, words in sockets if ports == (0, 0)]
    assert [x for x, _ in known] == [False, True]
    # Their buffers show which words these are.
    pairs = list(zip(*(words for _, words in known)))
    receive, send = (pairs.index(tuple(x + more for x in KNOWN)) for more in (0, 2))
    accepted, connected = ({(words[receive], words[send], bypasses) for ports, bypasses, words in sockets
                            if ports[end] == RDS_TCP_PORT} for end in (0, 1))
    size = min(USER_BUFFER, most or USER_BUFFER)
    assert accepted == connected == {(size, size, False)}
