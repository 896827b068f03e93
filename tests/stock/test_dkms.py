# SPDX-License-Identifier: GPL-2.0
"""The packages in a root of Debian: what DKMS builds, for which kernels, and what is said where it
cannot."""

import lzma

import pytest

import lint
from debian import PACKAGES, VERSION

BUILD = f"/usr/src/rds-rust-{VERSION}/scripts/dkms-build.sh"
NOWHERE = {"RDS_CACHE": "/tmp/no-cache"}
OTHER = "#!/bin/sh\necho 'rustc 1.85.1 (4eb161250 2025-03-15)'\n"


def test_installed_module(root, release):
    """It is the one that modprobe finds, and C RDS is beside it."""
    assert f"rds-rust/{VERSION}, {release}, x86_64: installed" in root.run("dkms", "status")
    ours = root.run("modinfo", "-k", release, "-F", "filename", "rds_rust").strip()
    assert "/updates/dkms/rds_rust.ko" in ours
    assert root.run("modinfo", "-k", release, "-F", "release", "rds_rust").strip() == VERSION
    assert "/kernel/net/rds/" in root.run("modinfo", "-k", release, "-F", "filename", "rds_rdma")


def test_tracepoints_cost_one_instruction(root, release, tmp_path):
    """Debian's kernels have static keys, and the headers for which DKMS builds have their
    assembly."""
    file = root.path / root.run("modinfo", "-k", release, "-F", "filename", "rds_rust").strip().lstrip("/")
    assert file.name in ("rds_rust.ko", "rds_rust.ko.xz")
    data = file.read_bytes()
    module = tmp_path / "rds_rust.ko"
    module.write_bytes(lzma.decompress(data) if file.suffix == ".xz" else data)
    assert lint.keys_without_patches(module) == []


def test_dkms_by_hand(root, release):
    """Removed from one kernel, and built and installed anew."""
    module = f"rds-rust/{VERSION}"
    root.run("dkms", "remove", module, "-k", release)
    assert root.try_to("modinfo", "-k", release, "rds_rust").returncode != 0
    root.run("dkms", "build", module, "-k", release)
    root.run("dkms", "install", module, "-k", release)
    root.run("modinfo", "-k", release, "rds_rust")


def test_wrong_rustc(root, release):
    """Is passed over, and why is said."""
    module = f"rds-rust/{VERSION}"
    root.run("dkms", "remove", module, "-k", release)
    try:
        with root.replaced("usr/bin/rustc", OTHER):
            done = root.try_to("dkms", "build", module, "-k", release)
            assert done.returncode == 77
            wanted = "here is rustc 1.85.1 (4eb161250 2025-03-15). Install the package rustc from the suite of the kernel"
            assert wanted in done.stdout and wanted in root.try_to(BUILD, "--check", root.built(release)).stdout
    finally:
        root.run("dkms", "install", module, "-k", release)


def test_missing_headers(root):
    done = root.try_to(BUILD, "--check", root.built("7.2.99-none"))
    assert done.returncode == 1
    assert "error: there is no /lib/modules/7.2.99-none/build: the kernel's headers are missing" in done.stdout


def test_missing_source(root, release):
    """Neither installed nor offered."""
    (root.path / "tmp/apt.conf").write_text('Dir::State::lists "/tmp/no-lists";\n')
    done = root.try_to(BUILD, "--check", root.built(release), APT_CONFIG="/tmp/apt.conf", **NOWHERE)
    assert done.returncode == 1
    assert f"error: apt does not offer linux-source-{release[:3]} {release.split('+')[0]}-" in done.stdout


def test_source_that_is_offered(root, release):
    assert root.run(BUILD, "--check", root.built(release), **NOWHERE) == ""


@pytest.mark.parametrize("page", ("rds_rust.7", "rds-info.1", "rds-ping.1", "rds-stress.1"))
def test_pages(page, root):
    assert "NAME" in root.run("man", "-P", "cat", *reversed(page.split(".")))


def test_tools_of_others(root):
    """Packages of other tools with the same names conflict with these."""
    told = root.run("dpkg-deb", "-f", f"/root/{PACKAGES[1]}", "Conflicts", "Provides", "Replaces")
    assert told == "Conflicts: rds-tools\nProvides: rds-tools\nReplaces: rds-tools\n"
