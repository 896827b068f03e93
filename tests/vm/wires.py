# SPDX-License-Identifier: GPL-2.0
"""The wires between two nodes, and addresses that move between their ports."""

import itertools

# Each test has its own networks, so its connections are new.
_networks = itertools.count(30)


class Address:
    """An address that a test moves between the ports of a machine."""

    def __init__(self, machine, guest, network, version):
        self.machine, self.guest, self.port = machine, guest, None
        number = 1 if machine.name == "a" else 2
        self.host = f"10.{network}.0.{number}" if version == 4 else f"fd{network}::{number}"
        self.prefix = f"{self.host}/24" if version == 4 else f"{self.host}/64"

    def give(self, port):
        flags = "nodad" if ":" in self.host else ""
        self.machine.run(f"ip addr add {self.prefix} dev {port} {flags}")
        self.port = port
        # The RDMA core notices the address after a short delay.
        self.machine.run(["python3", self.guest / "laddr.py", "bound", self.host])
        self.announce()

    def take(self):
        self.machine.run(f"ip addr del {self.prefix} dev {self.port}")
        self.port = None

    def move(self, port):
        self.take()
        self.give(port)

    def announce(self):
        self.machine.run(["python3", self.guest / "announce.py", self.port, self.host])


class Wires:
    """The wires between two nodes. Wire 0 is the one that all tests use. Wire 1 joins ports 1 and 2
    of node a and port 1 of node b."""

    def __init__(self, pair, guest):
        self.a, self.b = self.pair = pair
        self.guest = guest
        self.given = []

    def port(self, machine, which):
        """Returns the name of a port, which may be given by number."""
        return machine.netdevs[which] if isinstance(which, int) else which

    def addresses(self, a_port, b_port, version=4):
        """Gives one address of a new network to a port of a, and another to a port of b."""
        network = next(_networks)
        found = [Address(m, self.guest, network, version) for m in self.pair]
        for address, number in zip(found, (a_port, b_port)):
            address.give(self.port(address.machine, number))
        self.given += found
        return found

    def set_up(self):
        for m in self.pair:
            # A port answers ARP only for its own addresses. Otherwise two ports on one wire would
            # conflict.
            m.run("sysctl -q net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2")
            for number, port in enumerate(m.netdevs[1:], 1):
                m.run(f"ip link set {port} up && "
                      f"rdma link add spare{number} type {m.kind} netdev {port}")

    def take_down(self):
        for address in self.given:
            # An address of bond0 has gone together with bond0.
            if address.port in address.machine.netdevs:
                address.take()
        for m in self.pair:
            for number, port in enumerate(m.netdevs[1:], 1):
                m.run(f"rdma link del spare{number} && ip link set {port} down")
            # Soft-RoCE may have failed the CM's queue pair when the wire failed.
            m.run(f"rdma link del {m.kind}0 && "
                  f"rdma link add {m.kind}0 type {m.kind} netdev {m.netdevs[0]}")
            m.run("sysctl -q net.ipv4.conf.all.arp_ignore=0 net.ipv4.conf.all.arp_announce=0")
