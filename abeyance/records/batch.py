"""What a run hands over to be recorded, a batch at a time."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, TypeAlias

from pydantic import Field

from abeyance import views
from abeyance.wire import Record


class Fact(Record):
    """An event of a run. `number` counts all of them, from 1; `capability` is that of its question.

    `shown` is what a question showed a person, for the audit only.
    """

    number: int
    time: datetime
    type: str
    address: str | None = None
    actor: str | None = None
    data: dict[str, Any] = Field(default_factory=dict)
    capability: str | None = None
    shown: dict[str, Any] | None = None


class Batch(Record):
    """What has changed in a run since its last batch.

    `number` counts the batches of the run, from 1, and `origin` is the first of its executions in
    Temporal, which tells it from other runs of its id. `view` is the run without its questions, and
    `questions` are those that have changed, in full. `active_at` is when somebody or some code of it last
    did something.
    """

    number: int
    origin: str
    view: views.RunView
    active_at: datetime
    questions: list[views.InterruptView] = Field(default_factory=list)
    facts: list[Fact] = Field(default_factory=list)


Written: TypeAlias = Literal["written", "late", "away"]
"""What became of a batch: it is in the database; it will be, or not, in a moment; or the database cannot
be reached."""
