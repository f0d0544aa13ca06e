"""The end of a visit is the same moment in the run and in every replay of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from abeyance import wire
from abeyance.core.outcome import Finished
from abeyance.workflows.activity_calls import ended_at

ORDERED = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
NOW = ORDERED + timedelta(minutes=1)


def ended(took: float | None, latest: float) -> float:
    report = wire.VisitReport(outcome=Finished(), took=took)
    moment = ended_at(report, now=NOW, ordered=ORDERED, latest=ORDERED + timedelta(seconds=latest))
    return (moment - ORDERED).total_seconds()


@pytest.mark.parametrize(
    ("took", "latest", "seconds"),
    [
        pytest.param(None, 0, 60, id="an activity ends when the run hears of it"),
        pytest.param(3.5, 0, 3.5, id="a local one when its work was done"),
        pytest.param(3.5, 3, 3.5, id="also if something else has happened since it was ordered"),
        pytest.param(3.5, 4, 4, id="but not before what the run has heard of since"),
    ],
)
def test_the_end_of_a_local_node_does_not_depend_on_the_reporting_task(
    took: float | None, latest: float, seconds: float
) -> None:
    assert ended(took, latest) == seconds
