"""YAML documents in tests: the code that they name, and the types of the fixtures in `tests/yaml`."""

from __future__ import annotations

from collections.abc import Callable

from abeyance import Graph

Load = Callable[..., Graph]
"""Loads a document from text, by default under the name `triage.yaml`."""

Faults = Callable[[str], list[str]]
"""Returns the faults of a document that cannot be loaded."""

NODES = '''
from pydantic import BaseModel


class State(BaseModel):
    record_id: str
    verdict: str | None = None


class Decision(BaseModel):
    approved: bool


def classify(state):
    """Say what a record is."""
    record = state["record_id"] if isinstance(state, dict) else state.record_id
    return {"verdict": "benign" if record.startswith("ok") else "suspicious"}


async def act(state, ctx):
    return {"acted": True}


def say(state):
    return {"text": f"said {state.text}"}


def report():
    return None


def nothing():
    return None


number = 5
'''
"""The module `triage_nodes` of every test."""
