"""Runs and lists of runs, read from the records."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from recorded import Recorded, asked, at, batch, opened, question, run_view

from abeyance import views
from abeyance.core.policy import ReadRights
from abeyance.errors import Code, Refusal
from abeyance.filters import InboxFilter, RunFilter
from abeyance.records import questions, runs
from abeyance.records.cursors import Page
from abeyance.records.documents import Transaction
from abeyance.records.runs import ActiveRun

BLOCKED = [views.BlockedView(code="schema", message="does not fit")]


def listed(recorded: Recorded, **about: Any) -> Page[views.RunView]:
    beside = {name: about.pop(name) for name in ("cursor", "limit") if name in about}
    return recorded.read(runs.page, RunFilter(**about), **beside)


def names(page: Page[views.RunView]) -> str:
    return "".join(view.run_id for view in page.items)


def test_a_run_is_read_with_the_questions_that_wait_in_it(recorded: Recorded) -> None:
    first = question("a", "z", minute=1, payload={"amount": 250})
    second = question("a", "b", minute=2, status="held", held_until=at(9))
    view = run_view("a", values={"amount": 250}, open=2, labels={"tenant": "acme"})
    settled = question("a", "c", status="answered", settled_at=at(3))

    recorded.write(batch(view, first, second, settled), asked("b"))

    whole = view.model_copy(update={"interrupts": [first, second]})
    assert recorded.read(runs.run, "a") == whole
    assert recorded.read(runs.run, "c") is None


def test_code_that_is_tried_again_is_shown_until_its_time_comes(recorded: Recorded) -> None:
    def failed(node: str, in_minutes: float) -> views.RetryingView:
        due = datetime.now(UTC) + timedelta(minutes=in_minutes)
        return views.RetryingView(node=node, address=node, message="No.", attempts=1, due=due)

    waits = failed("waits", 5)
    recorded.write(batch(run_view("a", retrying=[failed("runs again", -1), waits])))
    view = recorded.read(runs.run, "a")

    assert view is not None
    assert view.retrying == [waits]


def test_a_run_is_the_newest_of_its_id_and_as_its_latest_batch_says(recorded: Recorded) -> None:
    newer = run_view("a", minute=5, graph="order")
    done = run_view("a", minute=5, graph="order", status="completed")
    recorded.write(
        batch(run_view("a"), question("a", "old"), origin="first"),
        batch(newer, origin="second"),
        batch(done, origin="second", number=3),
        batch(newer, origin="second", number=2),
        batch(run_view("a"), question("a", "old"), origin="first", number=2),
    )

    assert recorded.read(runs.run, "a") == done
    assert [view.graph for view in listed(recorded).items] == ["order"]
    assert listed(recorded).total == 1
    assert recorded.read(runs.by_activity) == []


def test_the_newest_run_of_an_id_is_the_one_that_temporal_began_last(recorded: Recorded) -> None:
    # By its client's clock, the second run began before the first one, which it follows.
    recorded.write(
        batch(run_view("a", minute=5), number=2, origin="first"),
        batch(run_view("a", minute=1), number=1, origin="second"),
    )
    recorded.write(batch(run_view("a", minute=6), question("a", "pay"), number=2, origin="second"))

    assert [view.created_at for view in listed(recorded).items] == [at(6)]
    assert [view.interrupts[0].name for view in listed(recorded).items] == ["pay"]


def test_runs_are_listed_newest_first_and_pages_follow_each_other(recorded: Recorded) -> None:
    recorded.write(*(batch(run_view(name, minute=ord(name) // 2)) for name in "abcdef"))

    first = listed(recorded, limit=3)
    recorded.write(batch(run_view("z", minute=200)))
    recorded.write(batch(run_view("f", minute=51, status="completed"), number=2))
    rest = listed(recorded, limit=3, cursor=first.next_cursor)

    assert (names(first), names(rest)) == ("fed", "cba")
    assert (first.total, rest.total, rest.next_cursor) == (6, 7, None)


def test_a_list_of_runs_has_no_values_and_the_first_questions_of_each(recorded: Recorded) -> None:
    many = [question("a", f"{number:02}", payload="large") for number in range(60)]
    view = run_view("a", values={"amount": 1}, open=60)
    done = run_view("b", minute=-1, status="completed", values={"n": 1}, result={"n": 1})
    recorded.write(batch(view, *many), batch(done))

    with recorded.statements() as statements:
        first, second = listed(recorded).items

    assert (first.values, first.open, len(first.interrupts)) == ({}, 60, 50)
    assert [entry.name for entry in first.interrupts[:2]] == ["00", "01"]
    assert first.interrupts[0].payload is None
    assert (second.values, second.result, second.interrupts) == ({}, None, [])
    assert len(statements) <= 4


FILTERS: list[tuple[dict[str, Any], str]] = [
    ({}, "dcba"),
    ({"statuses": {"completed"}}, "c"),
    ({"statuses": {"completed", "awaiting-input"}}, "dcba"),
    ({"statuses": {"failed"}}, ""),
    ({"graph": "order"}, "b"),
    ({"conversation_id": "talk"}, "c"),
    ({"labels": ("tenant=acme",)}, "ba"),
    ({"labels": ("tenant=acme", "region=eu")}, "a"),
    ({"labels": ("tenant=ac%",)}, ""),
    ({"labels": ("tenant=Acme",)}, ""),
    ({"labels": ("tenant=acmé",)}, ""),
    ({"blocked": True}, "d"),
    ({"blocked": False}, "cba"),
    ({"started_by": "ada"}, "a"),
    ({"started_by": "Ada"}, ""),
    ({"since": at(1)}, "dcb"),
    ({"until": at(2)}, "ba"),
    ({"since": at(1), "until": at(3), "order": "age"}, "bc"),
    ({"order": "age"}, "abcd"),
    ({"order": "activity"}, "dabc"),
    ({"order": "-activity"}, "cbad"),
    ({"q": "ADA"}, "a"),
    ({"q": "acme eu"}, "a"),
    ({"q": "refund talk"}, "c"),
    ({"q": "tenant=acme order"}, "b"),
    ({"q": "%"}, ""),
    ({"q": "_"}, ""),
    ({"q": "refund", "graph": "order"}, ""),
    ({"reads": ReadRights.of({"tenant": ["acme"]})}, "ba"),
    ({"reads": ReadRights.of({"tenant": ["acme", "x"], "region": ["us"]})}, "b"),
    ({"reads": ReadRights.of({"region": []})}, ""),
]


def test_runs_are_filtered_and_counted(recorded: Recorded) -> None:
    recorded.write(
        batch(run_view("a", labels={"tenant": "acme", "region": "eu"}, started_by="ada")),
        batch(run_view("b", minute=1, labels={"tenant": "acme", "region": "us"}, graph="order")),
        batch(run_view("c", minute=2, conversation_id="talk", status="completed")),
        batch(run_view("d", minute=3, blocked=BLOCKED), active_at=at(-1)),
    )

    for filters, expected in FILTERS:
        page = listed(recorded, **filters)
        assert (filters, names(page), page.total) == (filters, expected, len(expected))
    assert listed(Recorded(recorded.database, "theirs")).total == 0


def test_a_cursor_is_of_one_list_of_runs(recorded: Recorded) -> None:
    recorded.write(batch(run_view("a")), batch(run_view("b")))
    cursor = listed(recorded, limit=1).next_cursor

    others: list[dict[str, Any]] = [
        *({"q": "refund"}, {"statuses": {"completed"}}, {"started_by": "ada"}),
        *({"order": "age"}, {"since": at(0)}, {"until": at(9)}),
    ]
    for other in others:
        with pytest.raises(Refusal, match="not a cursor of this list") as refused:
            listed(recorded, cursor=cursor, **other)
        assert refused.value.code == Code.INVALID_BODY


def test_open_runs_are_listed_by_their_last_activity(recorded: Recorded) -> None:
    def active(name: str, minute: int, **fields: Any) -> None:
        view = run_view(name, status=fields.pop("status", "awaiting-input"))
        asks = [question(name, "pay", **fields)] if fields else []
        recorded.write(batch(view, *asks, active_at=at(minute)))

    active("last", 9)
    active("first", 1, prompt="Now?")
    active("due", 2, deadline=at(90))
    active("holds", 3, status="running", held_until=at(50))
    active("waited", 4, settled_at=at(4), deadline=at(90), priority="high")
    recorded.write(
        batch(
            run_view("waited"),
            question("waited", "pay", status="answered", settled_at=at(4), deadline=at(90)),
            number=2,
            active_at=at(4),
        ),
        batch(
            run_view("holds"), question("holds", "pay", status="held"), number=2, active_at=at(3)
        ),
        batch(run_view("ending", status="ending")),
        batch(run_view("over", status="completed")),
    )

    def found(**about: Any) -> list[str]:
        return [run.run_id for run in recorded.read(runs.by_activity, **about)]

    assert found() == ["first", "due", "holds", "waited", "last"]
    assert found(inactive_since=at(4)) == ["first", "waited"]
    assert found(inactive_since=at(3.9)) == ["first"]
    assert recorded.read(runs.active, coming=[], going=[]) == 5
    assert recorded.read(runs.active, coming=["new", "over", "due"], going=["last"]) == 5
    assert recorded.read(runs.at_work) == [("ending", False)]
    assert recorded.read(runs.by_activity)[0] == ActiveRun(last_activity_at=at(1), run_id="first")


OF_OPEN_RUNS: dict[str, Callable[[Transaction], Any]] = {
    "a conversation": lambda tx: runs.of_conversation(
        tx, "talk-0", session_type=None, reads=ReadRights()
    ),
    "list of a conversation": lambda tx: runs.page(tx, RunFilter(conversation_id="talk-0")),
    "blocked runs": lambda tx: runs.page(tx, RunFilter(blocked=True)),
    "active runs": lambda tx: runs.active(tx, coming=["0"], going=["1"]),
    "runs at work": runs.at_work,
    "inactive runs": lambda tx: runs.by_activity(tx, inactive_since=at(99)),
    "open runs": runs.open_ids,
    "runs that Temporal has ended": lambda tx: runs.unsettled(tx, {"0": "a", "1": "b"}),
    "inbox of a graph": lambda tx: questions.inbox(tx, InboxFilter(graph="refund")),
    "inbox of who started": lambda tx: questions.inbox(tx, InboxFilter(started_by="ada")),
}


def steps(folder: Path, ended: int, *queries: Callable[[Transaction], Any]) -> list[int]:
    """Return SQLite's steps for each query among so many runs, of which all but three have ended."""
    about = [
        {"conversation_id": f"talk-{n}", "started_by": "ada", "status": "completed"}
        for n in range(ended)
    ]
    for each in about[:3]:
        each["status"] = "awaiting-input"
    views_ = [run_view(f"{n}", minute=n, **each) for n, each in enumerate(about)]
    asks = [[question(f"{n}", "pay")] if n < 3 else [] for n in range(ended)]
    with opened(f"sqlite:///{folder}/{ended}.db") as recorded:
        recorded.write(*(batch(view, *ask) for view, ask in zip(views_, asks, strict=True)))
        return recorded.read(lambda tx: [_steps(tx, query) for query in queries])


def _steps(tx: Transaction, query: Callable[[Transaction], Any]) -> int:
    counted: list[None] = []
    raw: Any = tx.connection.connection.driver_connection
    raw.set_progress_handler(lambda: counted.append(None), 1)
    query(tx)
    raw.set_progress_handler(None, 1)
    return len(counted)


def test_queries_of_open_runs_do_not_slow_down_with_ended_ones(tmp_path: Path) -> None:
    few, many = (
        dict(zip(OF_OPEN_RUNS, steps(tmp_path, ended, *OF_OPEN_RUNS.values()), strict=True))
        for ended in (20, 400)
    )

    assert {name: (few[name], many[name]) for name in few if many[name] > 1.5 * few[name]} == {}


def test_runs_are_sorted_by_activity_without_reading_all_of_them(tmp_path: Path) -> None:
    by_age, by_activity = steps(
        tmp_path,
        400,
        lambda tx: runs.page(tx, RunFilter(order="-age")),
        lambda tx: runs.page(tx, RunFilter(order="-activity")),
    )

    assert by_activity < 1.2 * by_age
