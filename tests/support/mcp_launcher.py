"""Stands for a server of tools that is forked: its streams, its environment, and its life.

    python -I -S mcp_launcher.py SOCKET ARGUMENT...

It imports next to nothing, so that it starts within milliseconds. It ends when the server does, and the
server when it does.
"""

from __future__ import annotations

import json
import os
import socket
import sys

with socket.socket(socket.AF_UNIX) as line:
    line.connect(sys.argv[1])
    order = {"arguments": sys.argv[2:], "environment": dict(os.environ), "folder": os.getcwd()}  # noqa: PTH109 - without pathlib it starts faster
    socket.send_fds(line, [json.dumps(order).encode() + b"\n"], [0, 1, 2])
    line.recv(1)
