"""Workflow tasks and updates on the simulated server."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from temporalio.api.update.v1 import Outcome
from temporalio.bridge.proto.workflow_activation import WorkflowActivationJob as Job
from temporalio.bridge.proto.workflow_commands import WorkflowCommand as Command

if TYPE_CHECKING:
    from tests.simulation.worker import Worker


@dataclass(kw_only=True)
class Update:
    """An update of one execution. `attempt` is the workflow task that has it, until it responds.
    `accepted_at` and `answered_at` are the numbers of these events.
    """

    id: str
    job: Job
    attempt: Attempt | None = None
    is_accepted: bool = False
    accepted_at: int = 0
    answered_at: int = 0
    outcome: Outcome | None = None
    aborted: str = ""
    settled: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(kw_only=True, eq=False)
class Attempt:
    """An attempt at a workflow task. `steps` are the jobs of its activations, `seen` the core's steps."""

    number: int
    is_started: bool = False
    worker: Worker | None = None
    time: datetime | None = None
    length: int = 0
    jobs: list[Job] = field(default_factory=list)
    updates: list[Update] = field(default_factory=list)
    steps: list[list[Job]] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    flags: set[int] = field(default_factory=set)
    seen: list[Any] = field(default_factory=list)


@dataclass(kw_only=True, frozen=True)
class Done:
    """A completed workflow task in the history; `completed` is the number of its completion event."""

    time: datetime
    ended: datetime
    length: int
    completed: int
    size: int
    steps: list[list[Job]]
    commands: list[Command]
    flags: frozenset[int]
    seen: list[Any]
