# SPDX-License-Identifier: GPL-2.0
"""remote.py serve ADDRESS PORT: runs commands for another host, as sshd does.
remote.py run ADDRESS PORT COMMAND: runs one there. Its output and its status are those of this
program."""

import json
import socket
import socketserver
import subprocess
import sys


class Command(socketserver.StreamRequestHandler):
    def handle(self):
        done = subprocess.run(["sh", "-c", json.loads(self.rfile.readline())], stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace", check=False)
        self.wfile.write(json.dumps([done.returncode, done.stdout]).encode())


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True


what, address, port = sys.argv[1:4]
there = address, int(port)
if what == "serve":
    with Server(there, Command) as server:
        print("ready", flush=True)
        server.serve_forever()
else:
    with socket.create_connection(there) as s:
        s.sendall(json.dumps(sys.argv[4]).encode() + b"\n")
        status, out = json.loads(s.makefile().read())
    sys.stdout.write(out)
    sys.exit(status)
