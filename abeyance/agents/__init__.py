"""Agents: turns of a model, its tools and hooks, approvals, transcripts."""
