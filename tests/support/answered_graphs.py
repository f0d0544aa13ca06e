"""A graph that asks much at once, for APIs in processes of their own."""

from __future__ import annotations

from sample_graphs import gates

GATES = 12

graphs = [gates(GATES)]
