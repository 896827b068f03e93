# SPDX-License-Identifier: GPL-2.0
"""CPython's own tests of RDS sockets, unchanged."""

import re

import pytest


@pytest.mark.long
def test_cpython(node):
    """CPython's tests pass. Debian ships them in libpython3.*-testsuite."""
    result = node.run(["python3", "-m", "unittest", "-v", "test.test_socket.BasicRDSTest", "test.test_socket.RDSTest"],
                      timeout=300)
    ran = re.search(r"^Ran (\d+) tests", result.err, re.M)
    assert ran and int(ran[1]) >= 8 and result.err.rstrip().endswith("\nOK"), str(result)
