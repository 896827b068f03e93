# SPDX-License-Identifier: GPL-2.0
"""The kernel's own tests of RDS, unchanged."""

import re
import subprocess

import pytest
from rdsvm.cluster import TOP, must


@pytest.fixture(scope="session")
def selftests():
    """Returns the folder of the kernel's network tests."""
    source = subprocess.run([TOP / "scripts/fetch-kernel.sh"], check=True, capture_output=True,
                            text=True).stdout.strip()
    return f"{source}/tools/testing/selftests/net"


# The test creates its own devices, which are soft-RoCE.
@pytest.mark.long
@pytest.mark.kinds("rxe")
def test_kernel_selftest_over_rdma(node, selftests):
    result = node.run(["python3", f"{selftests}/rds/test.py", "--transport", "rdma"], check=False,
                      env={"PYTHONPATH": selftests}, timeout=900)
    assert result.status == 0, str(result)[-3000:]
    assert "ok 1 rds selftest rdma" in result.out, result.out[-3000:]


# No message reaches a device.
@pytest.mark.kinds("rxe")
def test_kernel_selftest_of_getsockopt(node, selftests):
    program = node.rundir / "getsockopt"
    subprocess.run(["gcc", "-O2", "-D_GNU_SOURCE=", "-o", program, f"{selftests}/rds/getsockopt.c"], check=True)
    result = must(node.run([program], check=False))
    passed, skipped = (int(re.search(rf"{x}:(\d+)", result.out)[1]) for x in ("pass", "skip"))
    assert passed >= 7 and not skipped, str(result)


# The test makes two network namespaces, which are its nodes.
@pytest.mark.kinds("rxe")
@pytest.mark.impls("rust")
@pytest.mark.long
def test_kernel_selftest_over_tcp(node, selftests, load):
    load("tcp=1")
    result = node.run(["python3", f"{selftests}/rds/test.py", "--transport", "tcp"], check=False,
                      env={"PYTHONPATH": selftests}, timeout=900)
    assert result.status == 0, str(result)[-3000:]
    assert "ok 1 rds selftest tcp" in result.out, result.out[-3000:]
