#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""make shell: a prompt on one node with rds_rust loaded."""

import os
import subprocess
import sys
import tempfile
import termios

from rdsvm import cluster
from rdsvm.node import NodeError


class Interactive(cluster.Machine):
    """A machine whose first virtio console is this terminal."""

    stdin = stdout = None

    def _spawn(self, *channels):
        self.qemu = ["-chardev", "stdio,id=tty,signal=off", "-device", "virtio-serial-pci",
                     "-device", "virtconsole,chardev=tty"]
        return super()._spawn(*channels)


def main():
    flavor = os.environ.get("FLAVOR", "release")
    if not sys.stdin.isatty():
        print("error: make shell needs a terminal", file=sys.stderr)
        return 1
    settings = termios.tcgetattr(sys.stdin)
    tools = cluster.TOP / "build/tools/release"
    with tempfile.TemporaryDirectory(prefix="rds-shell-") as rundir:
        machine = Interactive("rds", "rust", flavor, rundir)
        try:
            print("booting", flush=True)
            machine.boot()
            machine.add_pair()
            cluster.must(machine.load())
            size = os.get_terminal_size()
            print(f"rds_rust is loaded. Try: rds-ping -I {cluster.PAIR[0]} {cluster.PAIR[1]}\r\n"
                  f"Files written to {rundir} go when you leave: exit or Ctrl-D.\r", flush=True)
            machine.start(
                f"stty -F /dev/hvc0 sane rows {size.lines} cols {size.columns}; "
                f"exec setsid --ctty --wait bash -i </dev/hvc0 >/dev/hvc0 2>&1",
                env={"TERM": os.environ.get("TERM", "linux"), "PS1": r"\h:\w# ",
                     "PATH": f"{tools}:/run/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
            ).wait(timeout=10**9)
            return 0
        except (NodeError, subprocess.CalledProcessError) as e:
            print(f"error: {e}", file=sys.stderr)
            return 1
        finally:
            machine.kill()
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, settings)


if __name__ == "__main__":
    sys.exit(main())
