# SPDX-License-Identifier: GPL-2.0
"""tshark with the dissector of tools/wireshark, on the host."""

import subprocess
from pathlib import Path

# RoCE over IPv6 has no checksum of UDP, which Wireshark reports by default.
OPTIONS = ("-n", "-o", "udp.ignore_ipv6_zero_checksum:TRUE")
SCRIPT = Path(__file__).resolve().parents[2] / "tools/wireshark/rds.lua"


def lines(path, *options):
    """Returns the lines that tshark prints about a capture. No line may report an error in Lua."""
    done = subprocess.run(["tshark", *OPTIONS, "-X", f"lua_script:{SCRIPT}", "-r", path, *options], capture_output=True,
                          text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "Lua" not in done.stdout and "lua" not in done.stderr.lower(), done.stdout + done.stderr
    return done.stdout.splitlines()


def rows(path, *names, shown="af_rds"):
    """Returns the values of fields, in a row for each packet of RDS."""
    fields = [x for name in names or ("frame.number",) for x in ("-e", name)]
    found = lines(path, "-Y", shown, "-T", "fields", "-E", "separator=|", *fields)
    return [tuple(x.split("|")) for x in found]


def errors(path):
    """Returns the expert information of each packet of RDS."""
    found = lines(path, "-Y", "af_rds || af_rds_cm", "-T", "fields", "-e", "_ws.expert.message", "-E", "aggregator=|")
    return [set(filter(None, x.split("|"))) for x in found]
