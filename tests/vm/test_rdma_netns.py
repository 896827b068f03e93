# SPDX-License-Identifier: GPL-2.0
"""RDS over RDMA in network namespaces other than the initial one.

The namespaces of a machine are its nodes, with veth pairs between them and a soft-RoCE device on
each end. Soft-RoCE does not survive the move of a device from one namespace to another. So the
tests of the exclusive mode use the devices of tests/vm/faulty, which do.
"""

import errno
import json
from contextlib import contextmanager

import pytest
from rdsvm.cluster import PAIR
from spaces import Spaces
from traffic import Streams, counters, exchange, messages, ping, wait_for, wait_until

pytestmark = [pytest.mark.impls("rust"), pytest.mark.kinds("rxe"), pytest.mark.long("debug")]

PORT = 3900
CM_PORT = 18634
# A program with a socket at an address, until its input ends.
HOLD = """
import rds, sys
s = rds.Sock((sys.argv[1], int(sys.argv[2])))
print(s.transport(), flush=True)
sys.stdin.read()
"""
# The error of a bind, or its transport.
BIND = """
import errno, rds, sys
try:
    s = rds.Sock((sys.argv[1], 0))
    print(s.transport())
except OSError as error:
    print(errno.errorcode[error.errno])
"""
# The error of a socket that chooses a transport and is bound then, or its transport.
CHOOSE = """
import errno, rds, sys
try:
    s = rds.Sock()
    s.pin(sys.argv[2])
    s.bind(sys.argv[1], 0)
    print(s.transport())
except OSError as error:
    print(errno.errorcode[error.errno])
"""
# Another program at the port of the CM, until its input ends.
OCCUPY = """
import ctypes, peer, sys
peer.load(sys.argv[1])
end = ctypes.c_void_p(peer.verbs.end_new())
peer.checked("listen", peer.verbs.end_listen(end, peer.raw_address("0.0.0.0", int(sys.argv[2]))))
print("listens", flush=True)
sys.stdin.read()
"""
# The error of the registration of memory.
REGISTER = """
import ctypes, mmap, rdma, rds, sys
s = rds.Sock((sys.argv[1], 0))
area = mmap.mmap(-1, 4096)
try:
    rdma.register(s, ctypes.addressof(ctypes.c_char.from_buffer(area)), 4096)
    print("registered")
except OSError as error:
    print(error.errno)
"""
CONNECTIONS = "import info; print(__import__('json').dumps(info.rows(info.CONNECTIONS, False)))"


class RdmaSpaces(Spaces):
    """Namespaces with devices, which they own in exclusive mode, and share otherwise."""

    def __init__(self, node, guest, exclusive=False):
        super().__init__(node)
        # The debug kernel takes longer than usual to remove a device, and would log that.
        node.run("echo 300 >/proc/sys/net/core/netdev_unregister_timeout_secs")
        self.guest, self.exclusive = guest, exclusive
        if exclusive:
            node.run("rdma system set netns exclusive")

    def python(self, space, program, *args, start=False):
        command = ["env", f"PYTHONPATH={self.guest}", "python3", "-c", program, *args]
        return space.start(command) if start else space.run(command).out.strip()

    def add_device(self, space, netdev, name=None):
        """Adds the RDMA device of a network device of a namespace. Returns when a socket can have
        its address."""
        name = name or f"x-{netdev}"
        space.run(f"rdma link add {name} type rxe netdev {netdev}")
        if self.exclusive:
            self.node.run(f"rdma dev set {name} netns {space.name}")
        return name

    def join(self, left, right, network=80):
        hosts = super().join(left, right, network)
        for space, host in zip((left, right), hosts):
            self.add_device(space, f"v-{space.name}")
            self.await_address(space, host)
        return hosts

    def await_address(self, space, host):
        wait_until(lambda: self.python(space, BIND, host) == "infiniband")

    @contextmanager
    def held(self, *ends):
        """Has a socket at each of these addresses, without which a namespace has no RDMA."""
        held = [self.python(space, HOLD, host, PORT, start=True) for space, host in ends]
        for process in held:
            process.expect("^infiniband$")
        yield held
        for process in held:
            process.finish()

    def idle(self):
        """Returns the number of CM ids of RDS once it is steady for longer than they linger."""
        first = self.ids()
        self.node.run("sleep 2.5")
        return first if self.ids() == first else None

    def ids(self):
        """Returns the number of CM ids of RDS."""
        return self.node.run("rdma resource show cm_id").out.count("rds_rust")

    def devices(self):
        """Returns the devices of the initial namespace. `rdma link` fails while one is removed."""
        return self.node.run("ls /sys/class/infiniband").out.split()

    def close(self):
        super().close()
        # Meanwhile nobody can make a namespace: the RDMA core asks each device for its ports.
        wait_until(lambda: not [x for x in self.devices() if x.startswith("x-")])
        self.node.run("echo 10 >/proc/sys/net/core/netdev_unregister_timeout_secs")
        if self.exclusive:
            # Possible only when the kernel has ended them all.
            wait_until(lambda: self.node.run("rdma system set netns shared", check=False).status == 0)


@pytest.fixture
def spaces(node, guest):
    """A maker of namespaces with RDMA devices, which all namespaces share."""
    made = RdmaSpaces(node, guest)
    yield made
    made.close()


@pytest.fixture
def exclusive(faulty, guest):
    """A maker of namespaces that own their RDMA devices."""
    made = RdmaSpaces(faulty, guest, exclusive=True)
    yield made
    made.close()


def connections(spaces, space):
    return json.loads(spaces.python(space, CONNECTIONS))


def test_ping_both_ways(spaces, tools):
    ends = spaces.pair()
    with spaces.held(*ends):
        for (space, own), (_, peer) in (ends, ends[::-1]):
            ping(tools, space, peer, own)


@pytest.mark.parametrize("version", (4, 6))
def test_streams(spaces, tools, flavor, version):
    (left, _), (right, _) = ends = spaces.pair()
    if version == 6:
        ends = [(left, "fd80::1"), (right, "fd80::2")]
    exchange(tools, *ends, count=messages(flavor, 400), sockets=4)


def test_apart(spaces, node, tools, guest):
    """Namespaces see neither connections nor counters nor addresses of each other."""
    (left, host), (right, peer) = ends = spaces.pair()
    usual = counters(node, guest)
    with spaces.held(*ends):
        ping(tools, left, peer, host)
        seen = counters(left, guest)
        assert seen["send_queued"] >= 3 and counters(right, guest)["recv_ping"] >= 3
        # The numbers of pools are those of the machine.
        assert list(seen) == list(usual) and not [x for x in seen if "pool" in x and seen[x]]
        now = counters(node, guest)
        rose = {x for x in now if now[x] != usual[x] and "pool" not in x and x != "ib_rx_total_frags"}
        assert not rose, rose
        for space, count in ((left, 1), (right, 1)):
            assert len(connections(spaces, space)) == count
        assert not [x for x in connections(spaces, node) if "10.80." in str(x)]
    assert spaces.python(node, BIND, host) == "EADDRNOTAVAIL"
    for space in (left, right):
        assert spaces.python(space, BIND, PAIR[0]) == "EADDRNOTAVAIL"


def test_same_addresses(spaces, tools, flavor):
    """Two networks have the same addresses. Each has its own messages."""
    first = spaces.pair()
    second = list(spaces.make("third", "fourth"))
    second = list(zip(second, spaces.join(*second)))
    assert [x for _, x in first] == [x for _, x in second]
    streams = [Streams(tools, *ends, count=messages(flavor, 200), sockets=2) for ends in (first, second)]
    for stream in streams:
        stream.finish()


def test_with_the_initial_one(spaces, node, tools, flavor):
    """The peer of a namespace is the initial one of the same machine."""
    space, = spaces.make("left")
    node.run("ip link add v-init type veth peer name v-left netns left && ip addr add 10.81.0.1/24 dev v-init && "
             "ip link set v-init up && ip -n left addr add 10.81.0.2/24 dev v-left && ip -n left link set v-left up && "
             "rdma link add x-init type rxe netdev v-init")
    spaces.add_device(space, "v-left")
    for where, host in ((node, "10.81.0.1"), (space, "10.81.0.2")):
        spaces.await_address(where, host)
    exchange(tools, (node, "10.81.0.1"), (space, "10.81.0.2"), count=messages(flavor, 200), sockets=2)
    node.run("ip link del v-init")


def test_service_ends_with_the_last_socket(spaces, tools, flavor):
    """A namespace without sockets has no CM ids, which would keep it. Then it is served again."""
    ends = spaces.pair()
    # From here on there are only those of the initial namespace.
    idle = wait_until(spaces.idle)
    exchange(tools, *ends, count=messages(flavor, 100))
    with spaces.held(*ends):
        assert spaces.ids() > idle
    wait_until(lambda: spaces.ids() == idle, spaces.ids)
    exchange(tools, *ends, count=messages(flavor, 100))
    wait_until(lambda: spaces.ids() == idle, spaces.ids)


def test_end_under_traffic(spaces, tools, guest):
    """A namespace ends while messages for it and from it are on their way. Another one gets its
    address."""
    exchange(tools, *spaces.end_under_traffic(tools, guest, sockets=1), count=100)


def test_both_of_two_end(spaces, tools):
    """Two namespaces with a connection between them do not keep each other."""
    (left, host), (right, peer) = ends = spaces.pair()
    with spaces.held(*ends):
        ping(tools, left, peer, host)
    spaces.await_gone(left, right)


def test_device_goes_under_traffic(spaces, tools, guest, flavor):
    """A device goes while messages are on their way, and comes back. No message is lost."""
    (left, host), (right, _) = ends = spaces.pair()
    streams = Streams(tools, *ends, count=messages(flavor, 4000), sockets=2)
    wait_for(right, guest, lambda now: now["recv_delivered"] > 100)
    left.run("rdma link del x-v-left")
    assert spaces.python(left, BIND, host) == "EADDRNOTAVAIL"
    spaces.add_device(left, "v-left")
    streams.finish()


def test_unload_and_load(spaces, node, tools, load):
    """Namespaces outlive the module, and have RDS again when it is loaded."""
    ends = (left, host), (right, peer) = spaces.pair()
    with spaces.held(*ends):
        ping(tools, left, peer, host)
    load()
    exchange(tools, *ends, count=20)
    load("tcp=1")
    exchange(tools, *ends, count=20)


def test_choice_of_tcp(spaces, load):
    """An address of a device chooses RDMA, as in the initial namespace. A socket can choose TCP."""
    (left, host), _ = spaces.pair()
    load("tcp=1")
    spaces.await_address(left, host)
    assert [spaces.python(left, CHOOSE, host, x) for x in ("tcp", "infiniband")] == ["tcp", "EPROTOTYPE"]


def test_iwarp_device_is_added(spaces, node, tools):
    """The listeners of a namespace do not concern iWARP devices, which serve the initial one."""
    ends = (left, host), (_, peer) = spaces.pair()
    node.run("ip link add v-iw type veth peer name v-far && ip addr add 10.82.0.1/24 dev v-iw && "
             "ip link set v-iw up && ip link set v-far up")
    with spaces.held(*ends):
        node.run("rdma link add x-iw type siw netdev v-iw")
        spaces.await_address(node, "10.82.0.1")
        ping(tools, left, peer, host)
    node.run("ip link del v-iw")


def test_listens_when_the_port_is_free(spaces, node, tools):
    """Another program has the port of the CM in a namespace. When that ends, peers can connect."""
    ends = (left, host), (right, peer) = spaces.pair()
    occupant = spaces.python(left, OCCUPY, tools.parent / "verbs.so", CM_PORT, start=True)
    occupant.expect("^listens$")
    mark = node.mark("port in use")
    with spaces.held(*ends):
        node.wait_log("cannot listen in a network namespace", mark)
        occupant.finish()
        ping(tools, right, host, peer)


def test_end_without_a_link(spaces, node, tools):
    """A connection ends while its network device cannot send. Its namespace ends all the same, and
    the devices of others work."""
    (left, host), (right, peer) = ends = spaces.pair()
    with spaces.held(*ends):
        ping(tools, left, peer, host)
        left.run("ip link set v-left down")
    spaces.await_gone(left)
    left, = spaces.make("left")
    hosts = spaces.join(left, right)
    with spaces.held(*zip((left, right), hosts)):
        ping(tools, right, hosts[0], hosts[1])
    ping(tools, node, PAIR[1], PAIR[0])


@pytest.mark.parametrize("tcp", (False, True))
def test_namespace_of_a_user(spaces, load, tools, guest, tcp):
    """A namespace that belongs to a user gets no RDMA, even if root moves a device there."""
    if tcp:
        load("tcp=1")
    ends = left, right = spaces.make("left", "right", of_user=True)
    hosts = Spaces.join(spaces, *ends)
    for space in ends:
        spaces.add_device(space, f"v-{space.name}")
    # Those of the initial namespace, which listens on all devices.
    before = wait_until(spaces.idle)
    assert spaces.python(left, BIND, hosts[0]) == ("tcp" if tcp else "EADDRNOTAVAIL")
    assert spaces.python(left, CHOOSE, hosts[0], "infiniband") == "EPROTOTYPE"
    if tcp:
        exchange(tools, *zip(ends, hosts), count=20)
    assert spaces.ids() == before
    assert list(counters(left, guest)) == list(counters(spaces.node, guest))


def test_no_operations(spaces):
    """Programs of other namespaces get no remote access to their memory."""
    (left, host), _ = spaces.pair()
    assert spaces.python(left, REGISTER, host) == str(errno.EOPNOTSUPP)


def test_user(spaces, node):
    """A user takes an address of this host, and the hardware address of its device, in a namespace
    of his own. He gets no device, and there is no listener."""
    before = spaces.ids()
    mac = node.read_file("/sys/class/net/rdsv0/address").strip()
    found = node.run(["python3", spaces.guest / "rdma_user.py", PAIR[0], mac])
    assert found.out.split() == [str(errno.EADDRNOTAVAIL)] * 2
    assert spaces.ids() == before


def test_owned_device(exclusive, tools, flavor):
    """A device is moved into a namespace, which alone is served then."""
    ends = (left, host), (right, _) = exclusive.pair()
    exchange(tools, *ends, count=messages(flavor, 200), sockets=2)
    third, = exclusive.make("third")
    third.run(f"ip addr add {host}/32 dev lo")
    for space in (third, exclusive.node):
        assert exclusive.python(space, BIND, host) == "EADDRNOTAVAIL"


def test_owned_device_of_a_user(exclusive):
    """A device is moved into a namespace of a user, which gets no RDMA."""
    left, right = exclusive.make("left", "right", of_user=True)
    host, _ = Spaces.join(exclusive, left, right)
    exclusive.add_device(left, "v-left")
    assert exclusive.python(left, BIND, host) == "EADDRNOTAVAIL"


def test_owned_device_moves_under_traffic(exclusive, tools, guest, flavor):
    """The device leaves its namespace while messages are on their way, and comes back. No message
    is lost."""
    (left, host), (right, _) = ends = exclusive.pair()
    third, = exclusive.make("third")
    streams = Streams(tools, *ends, count=messages(flavor, 2000), sockets=2)
    wait_for(right, guest, lambda now: now["recv_delivered"] > 100)
    # Only from the namespace that has it.
    left.run("rdma dev set x-v-left netns third")
    assert exclusive.python(left, BIND, host) == "EADDRNOTAVAIL"
    third.run("rdma dev set x-v-left netns left")
    streams.finish()


def test_end_of_an_owner_under_traffic(exclusive, faulty, tools, guest):
    """A namespace ends that owns a device. The device returns to the initial one."""
    (left, _), (right, peer) = ends = exclusive.pair()
    streams = Streams(tools, *ends, count=1_000_000, sockets=2)
    wait_for(right, guest, lambda now: now["recv_delivered"] > 100)
    mark = faulty.mark("end of the owner")
    streams.ends[1].stop()
    exclusive.await_gone(right)
    streams.ends[0].stop()
    # It is added to the initial namespace, and goes with its network device.
    faulty.wait_log("RDS/IB: x-v-right: added", mark)
    wait_until(lambda: "x-v-right" not in exclusive.devices())
    faulty.run(f"ip link add v-back type veth peer name v-far && ip addr add {peer}/24 dev v-back && "
               "ip link set v-back up && ip link set v-far up && rdma link add x-back type rxe netdev v-back")
    exclusive.await_address(faulty, peer)
    faulty.run("ip link del v-back")
