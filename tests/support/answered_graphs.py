"""A graph with many questions at once, for APIs that run as separate processes."""

from __future__ import annotations

from sample_graphs import gates

GATES = 12

graphs = [gates(GATES)]
