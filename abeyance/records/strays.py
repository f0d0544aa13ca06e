"""Takes back what a workflow task recorded that came to nothing, by the histories of a run alone.

Else the next batch of the run does that, but a run that has ended has none, and one that waits may have
none for days.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy import Connection, select

from abeyance import views
from abeyance.records.batch import Batch
from abeyance.records.documents import Documents
from abeyance.records.tables import events, micros, runs
from abeyance.records.writing import lock, write


def take_back(
    connection: Connection,
    documents: Documents,
    deployment: int,
    latest: Batch,
    questions: Sequence[views.InterruptView],
    *,
    over: Mapping[str, float] | None,
    until: datetime,
) -> None:
    """Take back what was recorded after the latest batch of a run, in tasks that began before `until`:
    there all that the run has done is known. `questions` are all that it knows of.

    Clocks differ, so the name of the task has to say it too: `over` has, for each execution, the length
    of its history when the last task began that is over; None says that all are, of any execution.
    """
    lock(connection)
    row = connection.execute(
        select(runs.c.id, runs.c.batch, runs.c.rewind, runs.c.rewound_by).where(
            runs.c.deployment == deployment,
            runs.c.run_id == latest.view.run_id,
            runs.c.origin == latest.origin,
        )
    ).one_or_none()
    bound = micros(until)
    if row is None or not latest.number < row.batch < bound:
        return
    shift = 0
    if latest.rewound is not None:
        if latest.rewound.salt != row.rewind:
            return
        shift = row.rewound_by - latest.rewound.at
    last = latest.facts_before + len(latest.facts) + shift
    task = connection.execute(
        select(events.c.task)
        .where(events.c.run == row.id, events.c.number > last, events.c.rewound_by.is_(None))
        .order_by(events.c.number)
        .limit(1)
    ).scalar()
    if task is None:
        # It is recorded from outside, such as an end by Temporal.
        return
    execution, _, length = task.partition("/")
    if over is not None and int(length) > over.get(execution, 0):
        return
    changes = {
        "number": bound,
        "after": latest.number,
        "questions": [*questions],
        "gone": [],
        "is_whole": True,
        "facts_before": last,
        "facts": [],
        "rewound": None,
    }
    write(connection, documents, deployment, [latest.model_copy(update=changes)])
