# SPDX-License-Identifier: GPL-2.0
"""A root of Debian, as a test sees it from outside."""

import contextlib
import subprocess
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
VERSION = (TOP / "VERSION").read_text().strip()
PACKAGES = (f"rds-rust-dkms_{VERSION}_all.deb", f"rds-rust-tools_{VERSION}_amd64.deb")
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "DEBIAN_FRONTEND": "noninteractive", "LANG": "C"}


@dataclass
class Root:
    """A root of Debian, in which commands run, with the network of this machine and its kernel."""

    path: Path
    kernels: list

    def try_to(self, *command, **env):
        done = subprocess.run(["chroot", self.path, *command], env=ENVIRONMENT | env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        print(f"$ {' '.join(map(str, command))}\nexit status {done.returncode}\n{done.stdout}")
        return done

    def run(self, *command, **env):
        done = self.try_to(*command, **env)
        assert done.returncode == 0, f"{command}: {done.stdout}"
        return done.stdout

    def built(self, release):
        """The build tree that headers are installed as."""
        return f"/lib/modules/{release}/build"

    @contextlib.contextmanager
    def replaced(self, path, text):
        """A file of the root that is another program meanwhile."""
        file = self.path / path
        file.rename(file.with_suffix(".away"))
        try:
            file.write_text(text)
            file.chmod(0o755)
            yield
        finally:
            file.unlink()
            file.with_suffix(".away").rename(file)
