"""Graphs that are written in YAML."""

from __future__ import annotations

from abeyance.yaml.loader import load

__all__ = ["load"]
