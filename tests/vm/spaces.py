# SPDX-License-Identifier: GPL-2.0
"""Network namespaces of a machine as its nodes, with veth pairs between them."""

from probes import TRACING
from traffic import Streams, wait_for, wait_until

# The end of a namespace after the kernel has called those of all others.
LAST = "sysctl_core_net_exit"


# Gives a name to a network namespace that belongs to a user namespace of its own.
ADD_OF_USER = """
unshare -Urn sleep 60 & made=$!
while [ "$(readlink /proc/$made/ns/net)" = "$(readlink /proc/$$/ns/net)" ]; do sleep .05; done
ip netns attach {name} $made && kill $made
"""


class Space:
    """A network namespace, with the methods of a node that tests of traffic use."""

    def __init__(self, node, name, of_user=False):
        self.node, self.name = node, name
        node.run(ADD_OF_USER.format(name=name) if of_user else f"ip netns add {name}")
        node.run(f"ip -n {name} link set lo up")

    def _inside(self, command):
        argv = ["/bin/sh", "-c", command] if isinstance(command, str) else command
        return ["ip", "netns", "exec", self.name, *argv]

    def start(self, command, user=None, **kwargs):
        """Starts a command as root: only root may enter the namespace."""
        return self.node.start(self._inside(command), **kwargs)

    def run(self, command, check=True, user=None, **kwargs):
        return self.node.run(self._inside(command), check=check, **kwargs)

    def delete(self):
        self.node.run(f"ip netns del {self.name}")


class Spaces:
    """Namespaces, and how many of them have ended."""

    def __init__(self, node):
        self.node, self.made = node, []
        self.cd = f"cd {TRACING} &&"
        node.run(f"{self.cd} echo 'p:rds_netns/gone {LAST}' >>kprobe_events && echo 1 >events/rds_netns/gone/enable")

    def gone(self):
        found = self.node.run(f"cat {TRACING}/kprobe_profile").out.split()
        return int(found[found.index("gone") + 1])

    def await_gone(self, *spaces):
        """Deletes namespaces, and waits until the kernel has ended them."""
        before = self.gone()
        for space in spaces:
            space.delete()
        self.made = [x for x in self.made if x not in spaces]
        wait_until(lambda: self.gone() == before + len(spaces), lambda: f"{self.gone() - before} of {len(spaces)}")

    def make(self, *names, of_user=False):
        made = [Space(self.node, x, of_user) for x in names]
        self.made += made
        return made

    def join(self, left, right, network=80):
        """Joins two namespaces by a wire. Returns their addresses, the lower one first."""
        near, far = f"v-{left.name}", f"v-{right.name}"
        self.node.run(f"ip link add {near} netns {left.name} type veth peer name {far} netns {right.name}")
        hosts = []
        for space, netdev, number in ((left, near, 1), (right, far, 2)):
            host = f"10.{network}.0.{number}"
            self.node.run(f"ip -n {space.name} addr add {host}/24 dev {netdev} && "
                          f"ip -n {space.name} addr add fd{network}::{number}/64 dev {netdev} nodad && "
                          f"ip -n {space.name} link set {netdev} up")
            hosts.append(host)
        return hosts

    def pair(self):
        left, right = self.make("left", "right")
        return list(zip((left, right), self.join(left, right)))

    def end_under_traffic(self, tools, guest, sockets):
        """Ends one of a pair while messages for it and from it are on their way. Returns the ends
        of the wire to another one, which has its address."""
        (left, _), (right, _) = ends = self.pair()
        streams = Streams(tools, *ends, count=1_000_000, sockets=sockets)
        wait_for(right, guest, lambda now: now["recv_delivered"] > 100)
        streams.ends[1].stop()
        self.await_gone(right)
        assert streams.ends[0].running()
        streams.ends[0].stop()
        # The wire went with the namespace.
        right, = self.make("right")
        return list(zip((left, right), self.join(left, right)))

    def close(self):
        self.node.stop_all()
        for space in self.made:
            space.delete()
        self.node.run(f"{self.cd} echo 0 >events/rds_netns/enable; echo -:rds_netns/gone >>kprobe_events")
