# SPDX-License-Identifier: GPL-2.0
"""reset.py one|all|traffic HOST PEER PORT: resets connections between two addresses of this node.
"""

import json
import socket
import struct
import subprocess
import sys
import threading
import time

from cases import eventually
from rds import Sock, counters, read_numbered

CONN_RESET, CONN_RESET6 = 8, 11
TOS = 4
MESSAGES = 300
ROUNDS = 10


def reset(host, peer, tos=0):
    """Resets a connection as the owner of the local address."""
    def packed(address):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.inet_pton(family, address) if address else bytes(16 if ":" in host else 4)

    with Sock() as s:
        s.set_raw(CONN_RESET6 if ":" in host else CONN_RESET,
                  struct.pack("=B3x", tos) + packed(host) + packed(peer))


def exchange(host, peer, port, tos):
    with Sock((host, 0), 60) as s, Sock((peer, port), 60) as r:
        s.set_tos(tos)
        s.send(b"there", r.name())
        _, back = r.recv()
        r.set_tos(tos)
        r.send(b"back", back)
        s.recv()


def resets():
    return counters()["conn_reset"]


def main():
    what, host, peer, port = *sys.argv[1:4], int(sys.argv[4])
    if what == "traffic":
        return traffic(host, peer, port)
    for tos in (0, TOS):
        exchange(host, peer, port, tos)
    before = resets()
    # Each connection has two ends.
    count = 2 if what == "one" else 4
    reset(host, peer if what == "one" else None, 0)
    eventually("the reset of both ends", lambda: resets() - before == count)
    eventually("the connections to be back", lambda: queue_pairs() == 4)
    exchange(host, peer, port, 0)
    exchange(host, peer, port, TOS)
    if resets() - before != count:
        sys.exit(f"{resets() - before} resets instead of {count}")


def queue_pairs():
    found = json.loads(subprocess.run(["rdma", "-j", "res", "show", "qp"], check=True, capture_output=True).stdout)
    return sum(x.get("type") == "RC" and x.get("state") == "RTS" for x in found)


def traffic(host, peer, port):
    done = threading.Event()

    def disturb():
        for _ in range(ROUNDS):
            if done.wait(0.3):
                return
            reset(host, peer)

    with Sock((host, 0), 300) as s, Sock((peer, port), 300) as r:
        before = resets()
        threads = [threading.Thread(target=disturb) for _ in range(8)]
        for thread in threads:
            thread.start()

        def send():
            for i in range(MESSAGES):
                s.send(struct.pack("=I", i).ljust(5000, b"x"), r.name())
                time.sleep(0.01)

        sender = threading.Thread(target=send)
        sender.start()
        read_numbered(r, MESSAGES, 5000)
        sender.join()
        done.set()
        for thread in threads:
            thread.join()
        if resets() == before:
            sys.exit("nothing was reset")


if __name__ == "__main__":
    main()
