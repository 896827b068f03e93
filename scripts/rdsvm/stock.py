# SPDX-License-Identifier: GPL-2.0
"""Nodes that run a distribution's own kernel on its own root, with its installed packages.

The root is read-only for the guest, which has a file system in memory over it. Files that a test
writes to /etc are gone with the machine."""

import lzma
import shutil
import subprocess
from pathlib import Path

from .cluster import Machine
from .node import HERE, Node

# The folder of the root that gets a copy of the guest's half of this package.
PLACE = "opt/rds_rust/scripts/rdsvm"
# Modules that are loaded before the root is mounted, in this order and with their dependencies:
# for the root's file system, the overlay over it, the port of the agent, and the nodes' network.
EARLY = ("virtio_pci", "9pnet_virtio", "9p", "overlay", "virtio_console", "e1000")
INIT = """\
#!/bin/busybox sh
bb() { /bin/busybox "$@"; }
bb mount -t proc proc /proc
bb mount -t devtmpfs dev /dev
for module in $(bb cat /modules); do
	bb insmod "/lib/$module" || bb echo "cannot load $module"
done
bb mount -t 9p -o ro,trans=virtio,version=9p2000.L,cache=loose,msize=512000 /dev/root /lower
bb mount -t tmpfs tmpfs /upper
bb mkdir /upper/files /upper/work
bb mount -t overlay -o lowerdir=/lower,upperdir=/upper/files,workdir=/upper/work root /root
bb umount /proc
exec /bin/busybox switch_root /root "${rds_agent%/*}/init.sh"
"""


def install_agent(root):
    """Installs the agent in a root, so that a node can boot it."""
    place = Path(root) / PLACE
    place.mkdir(parents=True, exist_ok=True)
    for name in ("init.sh", "agent.py"):
        shutil.copy2(HERE / name, place)


def make_initrd(root, release, path):
    """Creates the initrd of a kernel of this root, which only mounts the root."""
    tree = path.with_suffix(".tree")
    for name in ("bin", "dev", "lib", "lower", "proc", "root", "upper"):
        (tree / name).mkdir(parents=True)
    shutil.copy2(root / "bin/busybox", tree / "bin")
    (tree / "init").write_text(INIT)
    (tree / "init").chmod(0o755)
    names = []
    for module in EARLY:
        done = subprocess.run(["modprobe", "-d", root, "-S", release, "--show-depends", module], check=True,
                              capture_output=True, text=True)
        for line in done.stdout.splitlines():
            kind, _, file = line.partition(" ")
            file = Path(file.split(" ")[0])
            if kind == "insmod" and file.name not in names:
                names.append(file.name)
                data = file.read_bytes()
                (tree / "lib" / file.name.removesuffix(".xz")).write_bytes(
                    lzma.decompress(data) if file.suffix == ".xz" else data)
    (tree / "modules").write_text("".join(f"{x.removesuffix('.xz')}\n" for x in names))
    listed = "".join(f"{x.relative_to(tree)}\n" for x in sorted(tree.rglob("*")))
    with open(path, "wb") as out:
        subprocess.run(["cpio", "--quiet", "-o", "-H", "newc"], cwd=tree, input=listed.encode(), stdout=out, check=True)
    return path


class StockMachine(Machine):
    """A node with the kernel `release` of the root `root`."""

    here = f"/{PLACE}"
    # Debian's kernels have no soft-iWARP.
    soft_devices = ("rdma_rxe",)

    def __init__(self, name, root, release, initrd, rundir, **kwargs):
        # The root has the kernel and its modules; this project builds none for it.
        self._begin("rust", "release", "rxe")
        self.root, self.release, self.initrd = root, release, initrd
        Node.__init__(self, name, root / "usr/lib/modules" / release, "/", rundir, nic="e1000", **kwargs)

    def image(self):
        return self.kernel / "vmlinuz"

    def load(self, impl=None, options=()):
        """Loads RDS by its name, as an administrator does."""
        return self.run(["modprobe", "rds", *options], check=False)

    def unload(self):
        return self.run(["rmmod", "rds_rust"], check=False)
