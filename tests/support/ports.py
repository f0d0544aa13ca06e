"""Free ports for the servers that tests start, and the ports on which processes listen."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from abeyance.dev.ports import free_ports


def free_port() -> int:
    """Return a port on which no process listens at this moment."""
    (port,) = free_ports("127.0.0.1", {"any": 0}).values()
    return port


def listening(pids: Iterable[int]) -> set[int]:
    """Return every TCP port on which one of these processes listens."""
    found = set()
    for pid in pids:
        folder = Path(f"/proc/{pid}")
        inodes = {*filter(None, map(_socket, (folder / "fd").iterdir()))}
        for table in ("tcp", "tcp6"):
            for line in (folder / "net" / table).read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == "0A" and words[9] in inodes:
                    found.add(int(words[1].rpartition(":")[2], 16))
    return found


def _socket(descriptor: Path) -> str | None:
    try:
        match = re.fullmatch(r"socket:\[(\d+)\]", str(descriptor.readlink()))
    except FileNotFoundError:  # the process has closed it meanwhile
        return None
    return match and match[1]
