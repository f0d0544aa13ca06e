"""Graphs as they are written, and what is made of them: the spec that a run is pinned to, a picture."""
