# SPDX-License-Identifier: GPL-2.0
"""Kconfig in a kernel tree: the options that follow from those of the kernel."""

import re
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
KMAKE = TOP / "scripts/kmake.sh"
OPTION = re.compile(r"^(?:# )?CONFIG_(\w+)(?:=(\S+)| is not set)$", re.M)


@pytest.fixture(scope="module")
def resolve(tmp_path_factory):
    """Returns a function that changes options of the test kernel, and returns those that follow."""
    kernel = Path(subprocess.run(["make", "-s", "-C", TOP, "print-kdir", "FLAVOR=release"], check=True,
                                 capture_output=True, text=True).stdout.strip())
    source, folder = (kernel / "source").resolve(), tmp_path_factory.mktemp("kconfig")
    usual = (kernel / ".config").read_text()
    # As net/Kconfig would include it.
    (folder / "Kconfig").write_text(f'{(source / "Kconfig").read_text()}\nsource "{TOP}/Kconfig"\n')
    # For kmake.sh: the compilers of the kernel.
    (folder / "include/config").mkdir(parents=True)
    (folder / "include/config/auto.conf").write_text((kernel / "include/config/auto.conf").read_text())

    def found(**options):
        lines = [x for x in usual.splitlines() if not re.search(rf"\bCONFIG_({'|'.join(options)})\b", x)]
        lines += [f"CONFIG_{name}={value}" if value != "n" else f"# CONFIG_{name} is not set"
                  for name, value in options.items()]
        (folder / ".config").write_text("\n".join(lines) + "\n")
        (folder / "source").unlink(missing_ok=True)
        done = subprocess.run([KMAKE, source, f"O={folder}", "LLVM=1", f"KBUILD_KCONFIG={folder}/Kconfig",
                               "olddefconfig"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
        assert done.returncode == 0 and "warning" not in done.stderr, done.stdout + done.stderr
        return {name: value or "n" for name, value in OPTION.findall((folder / ".config").read_text())}

    return found


@pytest.mark.parametrize("options, expected", (
    ({"RDS_RUST": "m", "INFINIBAND": "m"}, {"RDS_RUST": "m", "RDS_RUST_RDMA": "y", "RDS_RUST_TCP": "y"}),
    ({"RDS_RUST": "y", "RDS": "n"}, {"RDS_RUST": "y", "RDS_RUST_RDMA": "y", "RDS_RUST_TCP": "y"}),
    # What is built in cannot use a module.
    ({"RDS_RUST": "y", "RDS": "n", "INFINIBAND": "m"}, {"RDS_RUST": "y", "RDS_RUST_RDMA": None, "RDS_RUST_TCP": "y"}),
    ({"RDS_RUST": "m", "INFINIBAND": "n"}, {"RDS_RUST": "m", "RDS_RUST_RDMA": None, "RDS_RUST_TCP": "y"}),
    ({"RDS_RUST": "m", "RDS_RUST_RDMA": "n", "RDS_RUST_TCP": "n"},
     {"RDS_RUST": "m", "RDS_RUST_RDMA": "n", "RDS_RUST_TCP": "n"}),
    # One slot for the address family.
    ({"RDS_RUST": "m", "RDS": "y"}, {"RDS_RUST": None, "RDS_RUST_RDMA": None}),
), ids=("modules", "built-in", "built-in-without", "no-infiniband", "left-out", "beside-c"))
def test_options(resolve, options, expected):
    found = resolve(**options)
    assert {x: found.get(x) for x in expected} == expected
