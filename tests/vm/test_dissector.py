# SPDX-License-Identifier: GPL-2.0
"""The Wireshark dissector of tools/wireshark on packets of the wire."""

import base64
import ipaddress

import pytest
import tshark
from traffic import exchange, new_addresses, ping

pytestmark = pytest.mark.flavors("release")
PINGS, MESSAGES = 5, 30


class Sniffer:
    """tcpdump on the first wire of a node."""

    FILE = "/tmp/wire.pcap"

    def __init__(self, node):
        self.node = node
        self.process = node.start(["tcpdump", "-i", node.netdevs[0], "-w", self.FILE, "-U", "-B", 32768, "--immediate-mode"])
        node.run(["sh", "-c", f"until [ -s {self.FILE} ]; do sleep 0.1; done"])

    def stop(self, path):
        """Ends tcpdump and copies its capture to the host."""
        told = self.process.stop(2).err
        assert "\n0 packets dropped by kernel" in told, told
        path.write_bytes(base64.b64decode(self.node.run(["base64", self.FILE]).out))
        self.node.run(["rm", self.FILE])
        return path


@pytest.mark.on_siw
@pytest.mark.pairs("rust-rust", "rust-c")
@pytest.mark.parametrize("version", (4, pytest.param(6, marks=pytest.mark.long("release"))))
def test_wire(pair, tools, guest, tmp_path, version):
    """A new connection, its congestion maps, pings and messages are shown, without any
    complaint."""
    hosts = new_addresses(guest, pair, version)
    sniffer = Sniffer(pair[0])
    ping(tools, pair[0], hosts[1], hosts[0], count=PINGS)
    ends = list(zip(pair, hosts))
    exchange(tools, *ends, count=MESSAGES, sizes="1..600")
    exchange(tools, *ends, count=3, sizes="8000..20000")
    path = sniffer.stop(tmp_path / "wire.pcap")

    assert set.union(*tshark.errors(path)) == set()
    name = "6" if version == 6 else ""
    setup = tshark.rows(path, *(f"af_rds_cm.{x}" for x in (f"saddr{name}", f"daddr{name}", "major", "minor", "tos")),
                        shown="af_rds_cm.major")
    hosts = [str(ipaddress.ip_address(x)) for x in hosts]
    assert (*hosts, "4", "1", "0") in setup and (*hosts[::-1], "4", "1", "0") in setup, setup
    # Both ends send a map first.
    maps = tshark.rows(path, "af_rds.map.count", shown="af_rds.map")
    assert len(maps) >= 2 and {x for x, in maps} == {"0"}, maps
    rows = tshark.rows(path, "af_rds.kind", "af_rds.seq", "af_rds.len", "af_rds.fragment.offset", "ip.src", "ipv6.src")
    kinds = [kind for kind, *_ in rows for kind in kind.split(",")]
    assert kinds.count("Ping") >= PINGS and kinds.count("Pong") >= PINGS, kinds
    assert kinds.count("Message") >= 2 * (MESSAGES + 3)
    # Some messages have several fragments.
    assert {"0"} < {offset for *_, offset, _, _ in rows} - {""}, rows
