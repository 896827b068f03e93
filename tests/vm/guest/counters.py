# SPDX-License-Identifier: GPL-2.0
"""counters.py: prints the counters of RDS_INFO_COUNTERS as JSON."""

import json

from rds import counters

print(json.dumps(counters()))
