# SPDX-License-Identifier: GPL-2.0
"""The kernel's own test of RDS, unchanged. It makes its devices itself: soft-RoCE."""

import subprocess

import pytest
from rdsvm.cluster import TOP


@pytest.mark.kinds("rxe")
def test_kernel_selftest_over_rdma(node):
    source = subprocess.run([TOP / "scripts/fetch-kernel.sh"], check=True, capture_output=True,
                            text=True).stdout.strip()
    net = f"{source}/tools/testing/selftests/net"
    result = node.run(["python3", f"{net}/rds/test.py", "--transport", "rdma"], check=False,
                      env={"PYTHONPATH": net}, timeout=900)
    assert result.status == 0, str(result)[-3000:]
    assert "ok 1 rds selftest rdma" in result.out, result.out[-3000:]
