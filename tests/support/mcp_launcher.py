"""The stand-in for a forked tool server: the server gets this process's streams and environment.

    python -I -S mcp_launcher.py SOCKET ARGUMENT...

This program imports next to nothing, so that it starts within milliseconds. When either process ends,
the other ends too.
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
