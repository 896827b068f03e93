# SPDX-License-Identifier: GPL-2.0
"""settings.py NAME[=VALUE]...: reads and sets settings in /proc/sys/net/rds, in this order.

Prints a list with the numbers that were read, and for each write if it was accepted. Only values
out of range may be refused.
"""

import errno
import json
import sys

results = []
for name, _, value in (x.partition("=") for x in sys.argv[1:]):
    path = "/proc/sys/net/rds/" + name.replace(".", "/")
    if not value:
        with open(path, encoding="ascii") as f:
            results.append(int(f.read()))
        continue
    try:
        with open(path, "w", encoding="ascii") as f:
            f.write(value)
        results.append(True)
    except OSError as e:
        if e.errno != errno.EINVAL:
            raise
        results.append(False)
print(json.dumps(results))
