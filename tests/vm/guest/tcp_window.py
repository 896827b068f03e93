# SPDX-License-Identifier: GPL-2.0
"""tcp_window.py HOST PORT: prints how many bytes a peer that connects has room for, as TCP
tells."""

import socket
import struct
import sys

# Bytes before tcpi_snd_wnd in struct tcp_info of linux/tcp.h.
SND_WND = 228

listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("ready", flush=True)
peer, _ = listener.accept()
print("window", *struct.unpack_from("=I", peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, SND_WND + 4), SND_WND))
