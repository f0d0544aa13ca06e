"""Agents of other frameworks for workers that are killed. Environment variables name the framework, the
file for the agent's lines, and the line after which the process kills itself.
"""

from __future__ import annotations

import os
from pathlib import Path

from foreign_office import FRAMEWORKS, Office, desk

office = Office(
    [("a1", "look", 1)],
    [("b1", "look", 2), ("b2", "pay", 3)],
    "Done.",
    file=Path(os.environ.get("OFFICE_FILE", "lines")),
    dies_at=os.environ.get("OFFICE_DIES_AT"),
)
graphs = [desk(FRAMEWORKS[os.environ.get("OFFICE_FRAMEWORK", "pydantic_ai")](office))]
