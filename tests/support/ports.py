"""Ports for the servers that tests start."""

from __future__ import annotations

from abeyance.processes.claim import free_ports


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    (port,) = free_ports("127.0.0.1", {"any": 0}).values()
    return port
