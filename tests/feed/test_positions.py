"""The cursor of the stream of all runs: what a reader has, and what is new to them."""

from __future__ import annotations

import base64
import uuid
from datetime import UTC, datetime
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abeyance import Refusal, views
from abeyance.history.cursors import MOST, SPAN, Cursor, Positions

HERE = "namespace/queue"
NOON = 1_800_000_000_000_000


def event(run: int, number: int, at: int, *, birth: int = 0, index: int = 0) -> views.Event:
    """An event of a run, recorded so many microseconds after noon."""
    execution = str(uuid.UUID(int=run + 1))
    cursor = Cursor(run_id="r", execution=execution, birth=birth, event=number, index=index)
    made = views.Event(id=str(cursor), time=datetime.now(UTC), type="user.x", run_id="r")
    return made.recorded(views.Recording(origin=execution, at=NOON + at))


def again(positions: Positions) -> Positions:
    """What a reader has who connects again."""
    return Positions.read(HERE, positions.cursor(HERE))


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, SPAN - 1)), max_size=40))
def test_who_connects_again_has_what_they_had_and_no_more(drawn: list[tuple[int, int]]) -> None:
    events = [event(run, number, at) for number, (run, at) in enumerate(drawn, 1)]
    positions = Positions()
    for had, each in enumerate(events, 1):
        positions.add(each)
        returned = again(positions)
        assert not any(returned.is_new(before) for before in events[:had])
        assert returned.is_new(
            event(run=6, number=1, at=each.recording.at if each.recording else 0)
        )
        assert returned.is_new(event(*_next(each)))


def _next(before: views.Event) -> tuple[int, int, int]:
    execution = uuid.UUID(before.recording.origin if before.recording else "")
    return execution.int - 1, int(before.id[14:20], 16) + 1, 0


def test_what_becomes_known_late_is_still_new() -> None:
    positions = Positions()
    positions.add(event(run=0, number=9, at=SPAN))
    late, too_late = event(run=1, number=1, at=1), event(run=1, number=1, at=0)

    assert again(positions).is_new(late)
    assert not again(positions).is_new(too_late)
    # Who stayed has it more exactly.
    assert positions.is_new(too_late)


def test_a_later_history_of_a_run_is_new_however_few_events_it_has() -> None:
    positions = Positions()
    positions.add(event(run=0, number=500, at=5))

    assert positions.is_new(event(run=0, number=1, at=5, birth=1))
    assert not positions.is_new(event(run=0, number=1, at=5))


def test_a_cursor_has_room_for_the_latest_runs_only_and_repeats_none() -> None:
    positions = Positions()
    events = [event(run, 7, at=run, birth=NOON) for run in range(3 * MOST)]
    for each in events:
        positions.add(each)

    assert len(positions.cursor(HERE)) < 4_000
    assert not any(again(positions).is_new(each) for each in events)
    assert again(positions).is_new(event(run=1_000, number=1, at=3 * MOST - 1))


def test_a_reader_who_stays_keeps_the_runs_of_the_last_minutes() -> None:
    positions = Positions()
    for minute in range(60):
        positions.add(event(run=minute, number=1, at=minute * 60_000_000))

    assert not positions.is_new(event(run=0, number=2, at=0))
    assert positions.is_new(event(run=59, number=2, at=59 * 60_000_000))
    assert not positions.is_new(event(run=59, number=1, at=59 * 60_000_000))
    assert positions.until == positions.newest - 10 * 60_000_000


def test_nothing_before_a_moment_is_new_once_all_of_it_was_read() -> None:
    positions = Positions()
    positions.add(event(run=0, number=1, at=1))
    positions.advance(NOON + 10)

    assert not again(positions).is_new(event(run=2, number=1, at=10))
    assert again(positions).is_new(event(run=2, number=1, at=11))
    assert positions.birth(str(uuid.UUID(int=1))) is None


def test_a_copy_changes_alone() -> None:
    positions = Positions()
    copied = positions.copy()
    copied.add(event(run=0, number=1, at=1))

    assert positions.is_new(event(run=0, number=1, at=1))


@pytest.mark.parametrize(
    "text",
    ["", "x", "no cursor", "é", "A" * 40, Positions(NOON).cursor("namespace/other"), "A" * 5],
)
def test_what_is_no_cursor_of_this_deployment_is_refused(text: str) -> None:
    with pytest.raises(Refusal, match="is not a cursor of the stream") as refused:
        Positions.read(HERE, text)
    assert refused.value.code == "invalid_body"


@given(st.binary(max_size=60))
def test_a_forged_cursor_is_refused_or_read(body: bytes) -> None:
    forged = b"\x01" + bytes(8) + body
    check = sha256(HERE.encode() + b" " + forged).digest()[:4]
    text = base64.urlsafe_b64encode(forged + check).decode().rstrip("=")
    try:
        read = Positions.read(HERE, text)
    except Refusal as refusal:
        assert refusal.code == "invalid_body"
    else:
        assert read.cursor(HERE)
