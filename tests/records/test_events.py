"""Events of a run by number, and of all runs by position, read from the records."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import pytest
from recorded import Recorded, at, batch, fact, opened, run_view
from sqlalchemy import delete

from abeyance.core.policy import ReadRights
from abeyance.filters import EventFilter
from abeyance.keyring import WrongKey
from abeyance.records import events, runs, tables
from abeyance.records.batch import Extras, Fact
from abeyance.records.writing import write


def happened(recorded: Recorded, run_id: str, *facts: Fact, number: int = 1, **run: Any) -> None:
    recorded.write(batch(run_view(run_id, **run), facts=facts, number=number))


def types(recorded: Recorded, after: int = 0, limit: int = 100, **about: Any) -> list[str]:
    stretch = recorded.read(events.of_all, EventFilter(**about), after=after, limit=limit)
    return [event.type for event in stretch.items]


def test_the_events_of_a_run_are_read_on_after_a_number(recorded: Recorded) -> None:
    answered = fact(
        2, "interrupt.answered", address="pay", actor="ada", data={"id": "a.pay"}, capability="pay"
    )
    happened(recorded, "a", fact(1, "run.started"), answered)
    happened(recorded, "b", fact(1, "run.started"))
    happened(recorded, "a", answered, fact(11), fact(10), number=2)

    found = recorded.read(events.of_run, "a")
    assert [event.id for event in found] == sorted(event.id for event in found)
    assert [event.id for event in found][:2] == ["000000000001", "000000000002"]
    assert [int(event.id) for event in found] == [1, 2, 10, 11]
    second = found[1]
    assert (second.time, second.type, second.run_id) == (answered.time, answered.type, "a")
    assert (second.address, second.actor, second.data) == ("pay", "ada", {"id": "a.pay"})
    after = recorded.read(events.of_run, "a", after=2, limit=1)
    assert after == found[2:3]
    assert recorded.read(events.of_run, "a", after=11) == []
    assert recorded.read(events.of_run, "none") == []


@pytest.mark.parametrize("after", [2, 999_999_999_999])
def test_after_a_number_that_no_event_has_comes_nothing(recorded: Recorded, after: int) -> None:
    happened(recorded, "a", fact(1, "run.started"))

    part = recorded.read(events.part_of_run, "a", after=after)
    assert part is not None
    assert (part.items, part.newest, part.is_last) == ([], 1, True)


def test_a_run_that_has_the_id_of_an_older_one_has_its_own_events(recorded: Recorded) -> None:
    recorded.write(
        batch(run_view("a"), origin="first", facts=[fact(1, "run.started"), fact(2, "run.failed")]),
        batch(run_view("a", minute=1), origin="second", facts=[fact(1, "run.started")]),
    )

    assert [event.type for event in recorded.read(events.of_run, "a")] == ["run.started"]
    assert types(recorded) == ["run.started", "run.failed", "run.started"]


def selects(filters: EventFilter, type_: str, graph: str, capability: str | None) -> bool:
    """Return whether an event should pass the filter."""

    def is_among(names: tuple[str, ...], name: str | None) -> bool:
        return not names or any(
            name is not None and (name.startswith(each[:-1]) if each[-1] == "*" else name == each)
            for each in names
        )

    return (
        filters.graph in (None, graph)
        and is_among(filters.types, type_)
        and is_among(filters.capabilities, capability)
    )


def test_the_events_of_all_runs_are_filtered(recorded: Recorded) -> None:
    happened(
        recorded,
        "a",
        fact(1, "run.started"),
        fact(2, "interrupt.opened", capability="refunds:approve"),
        fact(3, "interrupt.answered", capability="refunds:approve"),
        labels={"tenant": "acme"},
    )
    happened(
        recorded,
        "b",
        fact(1, "run.started"),
        fact(2, "interruption", capability="refund"),
        fact(3, "interrupt.opened", capability="pay"),
        graph="order",
    )

    filters: list[dict[str, Any]] = [
        {},
        {"types": ("interrupt.opened",)},
        {"types": ("interrupt.*", "run.started")},
        {"types": ("*",), "graph": "order"},
        {"types": ("interrupt.%",)},
        {"types": ("Run.*",)},
        {"graph": "refund"},
        {"capabilities": ("pay", "refunds:*")},
        {"capabilities": ("*",)},
        {"capabilities": ("refund",), "types": ("interrup*",)},
        {"types": "interrupt.opened", "capabilities": "pay"},
    ]
    everything = recorded.read(events.of_all, EventFilter()).items
    capabilities = [None, "refunds:approve", "refunds:approve", None, "refund", "pay"]
    for about in filters:
        expected = [
            event.type
            for event, capability in zip(everything, capabilities, strict=True)
            if selects(EventFilter(**about), event.type, event.graph, capability)
        ]
        assert (about, types(recorded, **about)) == (about, expected)
    assert len(types(recorded, reads=ReadRights.of({"tenant": ["acme"]}))) == 3
    assert types(Recorded(recorded.database, "theirs")) == []


def test_reading_stretch_by_stretch_returns_every_matching_event(recorded: Recorded) -> None:
    for number in range(7):
        happened(recorded, f"r{number}", fact(1, "run.started"), fact(2), graph=f"g{number % 2}")
    filters = EventFilter(types=("run.*",), graph="g0")

    position, seen, stretches = 0, list[str](), 0
    while (stretch := recorded.read(events.of_all, filters, after=position, limit=2)).items:
        seen += [event.run_id for event in stretch.items]
        assert [event.event_id for event in stretch.items] == ["000000000001"] * len(stretch.items)
        position, stretches = stretch.place.position, stretches + 1

    assert (seen, stretches) == (["r0", "r2", "r4", "r6"], 2)
    # The reader's position is also past the events that the filter leaves out.
    assert stretch.place.position == recorded.read(events.positions).newest
    assert (
        recorded.read(events.of_all, filters, after=position + 99).place.position == position + 99
    )


def test_positions_are_between_the_oldest_and_the_newest_and_are_given_once(
    recorded: Recorded,
) -> None:
    other = Recorded(recorded.database, "theirs")
    none = recorded.read(events.positions)
    assert (none.oldest, none.newest) == (0, 0)
    happened(recorded, "a", fact(1), fact(2))
    happened(other, "a", fact(1))
    happened(recorded, "b", fact(1), fact(2))
    before = recorded.read(events.positions)

    with recorded.database.writing() as connection:
        connection.execute(delete(tables.runs))
    happened(recorded, "c", fact(1))
    after = recorded.read(events.positions)

    assert before.oldest < before.newest < after.oldest == after.newest
    assert before.made_at == after.made_at > 0


def test_a_part_of_a_run_says_whether_there_is_more_and_where_to_go_on(recorded: Recorded) -> None:
    assert recorded.read(events.part_of_run, "a") is None
    happened(recorded, "a", fact(1), fact(2), fact(3))
    happened(recorded, "b", fact(1))

    first = recorded.read(events.part_of_run, "a", limit=2)
    assert first is not None
    assert (len(first.items), first.newest, first.is_last, first.has_ended) == (2, 3, False, False)
    rest = recorded.read(events.part_of_run, "a", after=2, limit=2)
    assert rest is not None
    assert ([int(each.id) for each in rest.items], rest.is_last) == ([3], True)
    happened(recorded, "a", fact(4), number=2, status="completed")
    last = recorded.read(events.part_of_run, "a", beyond=rest.position, limit=1)
    assert last is not None
    assert ([int(each.id) for each in last.items], last.is_last, last.has_ended) == (
        [4],
        True,
        True,
    )


def test_reading_by_position_returns_the_event_that_replaced_another(recorded: Recorded) -> None:
    happened(recorded, "a", fact(1), fact(2, "node.started"))
    before = recorded.read(events.part_of_run, "a")
    assert before is not None
    # The second batch knows nothing of the first one's last event.
    lost = batch(run_view("a"), facts=[fact(2, "run.paused")], number=3)
    recorded.write(lost.model_copy(update={"after": 0, "facts_before": 1}))

    part = recorded.read(events.part_of_run, "a", beyond=before.position)
    assert part is not None
    assert [(int(each.id), each.type) for each in part.items] == [(2, "run.paused")]


def test_a_filter_that_few_events_pass_is_read_in_stretches(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "_LOOKED_AT", 3)
    happened(recorded, "a", *(fact(number) for number in range(1, 10)), fact(10, "run.paused"))
    place, seen, stretches = events.Place(), list[str](), 0
    while True:
        filters = EventFilter(types=("run.*",))
        stretch = recorded.read(events.of_all, filters, after=place.position)
        seen += [event.type for event in stretch.items]
        place, stretches = stretch.place, stretches + 1
        if stretch.is_last:
            break

    assert (seen, stretches) == (["run.paused"], 4)


def test_a_reader_may_begin_at_a_time(recorded: Recorded) -> None:
    assert recorded.read(events.place_before, at(0)).position == 0
    happened(recorded, "a", fact(1), fact(2), fact(3))

    def types_since(minutes: float) -> list[int]:
        place = recorded.read(events.place_before, at(minutes))
        found = recorded.read(events.of_all, EventFilter(), after=place.position).items
        return [int(event.event_id) for event in found]

    assert [types_since(minutes) for minutes in (0, 1, 1.5, 3)] == [[1, 2, 3], [2, 3], [2, 3], []]


def test_a_place_is_read_as_it_was_written_and_nothing_else_is_one(recorded: Recorded) -> None:
    happened(recorded, "a", fact(1))
    (event,) = recorded.read(events.of_all, EventFilter()).items
    place = events.Place.parse(event.id)
    assert place is not None
    assert str(place) == event.id
    assert place.made_at == recorded.read(events.positions).made_at > 0
    for text in ("", "nonsense", event.event_id, f"{event.id}0" * 2, "-1"):
        assert events.Place.parse(text) is None
    assert [events.number_of(text) for text in ("000000000012", "12", "x", event.id)] == [
        12,
        *[None] * 3,
    ]


def test_events_that_no_key_opens_are_left_out_and_their_runs_named(database_url: str) -> None:
    with opened(database_url, "old") as old, opened(database_url, "new") as new:
        for recorded, run_id in ((old, "a"), (new, "b")):
            happened(recorded, run_id, fact(1, "run.started"))

        stretch = new.read(events.of_all, EventFilter(), limit=1)
        assert (stretch.items, stretch.unreadable, stretch.is_last) == ([], frozenset({"a"}), False)
        stretch = new.read(events.of_all, EventFilter(), after=stretch.place.position)
        assert ([event.run_id for event in stretch.items], stretch.is_last) == (["b"], True)
        with pytest.raises(WrongKey):
            new.read(events.of_run, "a")
        over = batch(run_view("c", status="completed", ended_at=at(1)), number=2)
        old.write(over.model_copy(update={"extras": Extras()}))
        with pytest.raises(WrongKey):
            new.read(runs.ended, "c")


def test_no_event_becomes_visible_behind_a_reader(recorded: Recorded) -> None:
    slow, fast = (batch(run_view(name), facts=[fact(1, f"user.{name}")]) for name in ("s", "f"))

    with ThreadPoolExecutor(1) as beside:
        with recorded.database.writing() as connection:
            write(recorded.transaction(connection), [slow])
            writing = beside.submit(recorded.write, fast)
            assert types(recorded) == []
            assert wait([writing], timeout=0.3).not_done
        writing.result(30)

    assert types(recorded) == ["user.s", "user.f"]
