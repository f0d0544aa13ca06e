"""Graphs from YAML. Start reading at `loader`; `builder` makes the graph, `source` keeps the lines."""

from __future__ import annotations

from abeyance.yaml.loader import load

__all__ = ["load"]
