# SPDX-License-Identifier: GPL-2.0
"""unanswered.py now: four threads register memory on a device that does not respond, and all get an
error.

unanswered.py later: the device responds again, and is asked again, after a while.
"""

import sys
import time
from concurrent.futures import ThreadPoolExecutor

from cases import need, outcome
from rdma import Pair

PAGE = 4096


def now():
    with Pair(4) as p, ThreadPoolExecutor(4) as four:
        errors = list(four.map(lambda _: outcome(p.theirs.register, 0, PAGE), range(4)))
        need(errors == ["ETIMEDOUT"] * 4, f"{errors}")


def later():
    with Pair(4) as p:
        end = time.monotonic() + 60
        while (cookie := outcome(p.theirs.register, 0, PAGE)) == "ETIMEDOUT":
            need(time.monotonic() < end, "it is never asked again")
            time.sleep(0.1)
        p.theirs.free(cookie)


{"now": now, "later": later}[sys.argv[1]]()
