"""Grants in the database: made by an event, used by calls, revoked, taken back and discarded."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from recorded import Recorded, at, batch, fact, opened, run_view
from sqlalchemy import delete, select, update

from abeyance.core.approvals import Grant, Wanted, as_json, bytes_of
from abeyance.errors import Code, Refusal, Unavailable
from abeyance.filters import EventFilter
from abeyance.records import audit, audit_chain, events, grants, removing
from abeyance.records.batch import Batch, Fact, Rewound
from abeyance.records.grant_views import GrantView
from abeyance.records.tables import events as events_table
from abeyance.records.tables import grants as table
from abeyance.records.writing import fill


def grant(**fields: Any) -> Grant:
    about = {"id": "g", "tool": "pay", "declaration": "d", "graph": "refund", "by": "ada"}
    return Grant(**{**about, "made_at": at(0), "until": at(600), **fields})


CHAINED = ("n", "prev", "hash", "lines")
"""The fields of an audit's line beside its content."""


def made(number: int = 1, **fields: Any) -> Fact:
    """Return the event of a yes that is remembered."""
    this = grant(**fields)
    data = {"id": "a.q", "grant": this.id, "tool": this.tool}
    return fact(number, "approval.remembered", data=data, audit={"grant": as_json(this)})


def making(run_id: str = "a", **fields: Any) -> Batch:
    """Return the batch of a run in which an approver had a yes remembered."""
    return batch(run_view(run_id), facts=[made(**fields)])


def call(name: str = "c1", run_id: str = "b", **fields: Any) -> Wanted:
    about: dict[str, Any] = {"tool": "pay", "declaration": "d", "graph": "refund"}
    about |= {"run_id": run_id}
    about |= {"origin": f"{run_id}-first", "call": name, "arguments": {}}
    return Wanted(**{**about, **fields})


def anybody(_: Grant) -> bool:
    return True


def take(recorded: Recorded, wanted: Wanted, minute: float = 1) -> str | None:
    found = recorded.change(grants.take, wanted, now=at(minute), may=anybody)
    return None if found is None else found.id


def listed(recorded: Recorded, minute: float = 1) -> list[GrantView]:
    return recorded.read(grants.listed, at(minute))


def test_a_call_takes_one_use_however_often_it_comes(recorded: Recorded) -> None:
    recorded.write(making(uses=2))
    assert [take(recorded, call(name)) for name in ("c1", "c1", "c2", "c1")] == ["g"] * 4
    assert take(recorded, call("c3")) is None
    assert recorded.read(grants.covering, call("c3"), now=at(1), may=anybody) is None
    (shown,) = recorded.read(grants.listed, at(1), status="all")
    assert [(use.run_id, use.call) for use in shown.used] == [("b", "c1"), ("b", "c2")]


def test_a_later_run_of_the_same_id_takes_a_use_of_its_own(recorded: Recorded) -> None:
    recorded.write(making(uses=1))
    assert take(recorded, call()) == "g"
    assert take(recorded, call(origin="b-second")) is None


def test_one_of_ten_concurrent_calls_gets_the_last_use(recorded: Recorded) -> None:
    recorded.write(making(uses=1))
    with ThreadPoolExecutor(10) as threads:
        found = [*threads.map(lambda number: take(recorded, call(f"c{number}")), range(10))]

    assert sorted(map(str, found)) == ["None"] * 9 + ["g"]
    (shown,) = recorded.read(grants.listed, at(1), status="all")
    assert (len(shown.used), shown.status) == (1, "used-up")


def test_used_up_expired_and_revoked_grants_are_listed_only_with_all(
    recorded: Recorded,
) -> None:
    told = [made(1, uses=1), made(2, id="h", until=at(2)), made(3, id="i"), made(4, id="j")]
    recorded.write(batch(run_view("a"), facts=told))
    take(recorded, call())
    revoke(recorded, 3, id_="i")

    assert [each.id for each in listed(recorded, 4)] == ["j"]
    assert recorded.read(grants.counting, "ada", at(4)) == (1, bytes_of({}))
    every = recorded.read(grants.listed, at(4), status="all")
    assert [(each.id, each.status) for each in every] == [
        ("g", "used-up"),
        ("h", "expired"),
        ("i", "revoked"),
        ("j", "standing"),
    ]
    assert [each.revoked_by for each in every] == [None, None, "ben", None]


def test_a_grant_of_one_run_is_of_no_other_run_of_its_id(recorded: Recorded) -> None:
    recorded.write(making("a"))
    own = grant(id="own", run_id="a")
    facts = [fact(2, "approval.remembered", data={"grant": "own"}, audit={"grant": as_json(own)})]
    recorded.change(grants.revoke, "g", by="ben", now=at(0), check=lambda _: None)
    recorded.write(batch(run_view("a"), number=2, facts=facts))

    assert take(recorded, call(run_id="b")) is None
    assert take(recorded, call(run_id="a", origin="a-second")) is None
    assert take(recorded, call(run_id="a")) == "own"


def test_a_grant_is_revoked_once_and_by_who_may(recorded: Recorded) -> None:
    def never(_: Grant) -> None:
        raise Refusal(Code.CAPABILITY_REQUIRED, "no")

    recorded.write(making())
    take(recorded, call())
    with pytest.raises(Refusal, match="no"):
        recorded.change(grants.revoke, "g", by="ben", now=at(1), check=never)
    assert take(recorded, call("c2")) == "g"
    first = recorded.change(grants.revoke, "g", by="ben", now=at(1), check=lambda _: None)
    assert recorded.change(grants.revoke, "g", by="ben", now=at(2), check=lambda _: None) == first
    # Neither a new call nor one that has taken its use may run.
    assert [take(recorded, call(name)) for name in ("c2", "c3")] == [None, None]
    assert listed(recorded) == []
    with pytest.raises(Refusal) as refused:
        recorded.change(grants.revoke, "unknown", by="ben", now=at(1), check=lambda _: None)
    assert refused.value.code is Code.NOT_FOUND


def revoke(recorded: Recorded, minute: float, by: str = "ben", id_: str = "g") -> GrantView:
    return recorded.change(grants.revoke, id_, by=by, now=at(minute), check=lambda _: None)


def exported(recorded: Recorded, run_id: str = "a") -> bytes:
    """Return the audit of a run, and check that it verifies."""
    data = audit_chain.written(recorded.read(audit.contents, run_id))
    assert audit_chain.verify(data).faults == ()
    return data


def test_a_revocation_is_a_line_of_its_own_at_the_end_of_the_audit_and_changes_none_before(
    recorded: Recorded,
) -> None:
    recorded.write(batch(run_view("a"), facts=[made(1, capability="pay"), made(2, id="h")]))
    before = exported(recorded).splitlines()[:-1]
    revoked = revoke(recorded, 5)
    # The second revocation changes nothing.
    revoke(recorded, 6, by="carol")

    assert (revoked.revoked_at, revoked.revoked_by) == (at(5), "ben")
    assert [each.revoked_by for each in listed(recorded)] == [None]
    *same, line, _ = exported(recorded).splitlines()
    assert same == before
    told = {name: it for name, it in json.loads(line).items() if name not in CHAINED}
    assert told == {
        "type": "approval.revoked",
        "time": "2026-03-02T12:05:00Z",
        "run_id": "a",
        "actor": "ben",
        "data": {"grant": "g", "tool": "pay"},
    }


@pytest.mark.parametrize("status", ["awaiting-input", "completed"])
def test_a_run_goes_on_after_a_revocation_under_the_numbers_that_it_has_given(
    recorded: Recorded, status: str
) -> None:
    recorded.write(batch(run_view("a"), facts=[fact(1), made(2)]))
    revoke(recorded, 5)
    before = exported(recorded).splitlines()[:-1]
    told = batch(run_view("a", status=status), number=2, facts=[fact(3), fact(4)])
    recorded.write(told)

    lines = exported(recorded).splitlines()
    assert lines[: len(before)] == before
    assert [json.loads(each).get("id", "none")[-1] for each in lines[:-1]] == [*"12e34"]
    assert [int(each.id) for each in recorded.read(events.of_run, "a")] == [1, 2, 3, 4]
    assert len(recorded.read(events.of_all, EventFilter()).items) == 4


def test_a_reindex_keeps_a_revocation_where_it_is(recorded: Recorded) -> None:
    told = [
        batch(run_view("a"), facts=[fact(1), made(2)]),
        batch(run_view("a"), number=2, facts=[fact(3)]),
        batch(run_view("a"), number=3, facts=[fact(4)]),
    ]
    recorded.write(*told[:2])
    revoke(recorded, 5)
    recorded.write(told[2])
    before = recorded.read(audit.contents, "a")[:-1]
    for each in told:
        recorded.change(fill, each)

    assert recorded.read(audit.contents, "a")[:-1] == before
    # This also holds for an event that was lost in between.
    with recorded.database.writing() as connection:
        connection.execute(delete(events_table).where(events_table.c.number == 3))
    recorded.change(fill, told[1])
    assert recorded.read(audit.contents, "a")[:-1] == before


def test_a_revocation_that_was_changed_in_the_database_is_noticed(recorded: Recorded) -> None:
    recorded.write(making())
    revoke(recorded, 5)
    with recorded.database.writing() as connection:
        beside = update(events_table).where(events_table.c.number.is_(None))
        connection.execute(beside.values(actor="eve"))
    with pytest.raises(Unavailable, match=r"'approval\.revoked' after event 1 is not as"):
        recorded.read(audit.contents, "a")


def test_grants_are_listed_and_counted_by_their_makers(recorded: Recorded) -> None:
    shared = {"to": "ben" * 1_000}
    recorded.write(making("a"), making("c", id="h", by="bob", same=shared))
    assert [each.id for each in listed(recorded)] == ["g", "h"]
    assert [each.id for each in recorded.read(grants.listed, at(1), "bob")] == ["h"]
    assert recorded.read(grants.counting, "bob", at(1)) == (1, bytes_of(shared))
    assert recorded.read(grants.counting, "bob", at(600)) == (0, 0)


def test_a_grant_is_written_once_and_stays_revoked_when_it_comes_again(recorded: Recorded) -> None:
    recorded.write(making())
    recorded.change(grants.revoke, "g", by="ben", now=at(1), check=lambda _: None)
    recorded.change(fill, making())
    assert listed(recorded) == []


def test_a_grant_that_is_made_anew_counts_no_more_because_it_may_have_been_revoked(
    recorded: Recorded,
) -> None:
    told = making(), batch(run_view("a"), number=2, facts=[made(2, id="h")])
    # The second batch comes first: it makes the run anew, and the first one fills a gap.
    for each in reversed(told):
        recorded.change(fill, each)

    assert listed(recorded) == []
    assert take(recorded, call()) is None
    recorded.write(batch(run_view("a"), number=3, facts=[made(3, id="i")]))
    assert [each.id for each in listed(recorded)] == ["i"]


def test_a_reindexed_grant_has_its_uses_in_any_order_of_runs(
    recorded: Recorded,
) -> None:
    data = {"grant": "g", "by": "ada", "tool": "pay", "call": "1"}
    used = fact(1, "approval.granted", data=data, address="c1")
    recorded.write(batch(run_view("b"), facts=[used]))
    recorded.write(making(uses=1))

    assert take(recorded, call("c2")) is None
    assert take(recorded, call("c1")) == "g"


def test_a_grant_of_a_task_that_came_to_nothing_is_taken_back(recorded: Recorded) -> None:
    recorded.write(batch(run_view("a"), facts=[fact(1)]))
    stray = batch(run_view("a"), number=2, facts=[made(2)])
    again = batch(run_view("a"), number=3, facts=[made(2, id="h")])
    recorded.write(stray, again.model_copy(update={"after": 1}))

    assert [each.id for each in listed(recorded)] == ["h"]


def test_the_same_grant_of_a_repeated_task_keeps_its_uses(recorded: Recorded) -> None:
    recorded.write(batch(run_view("a"), facts=[fact(1)]))
    recorded.write(batch(run_view("a"), number=2, facts=[made(2, uses=1)]))
    take(recorded, call())
    again = batch(
        run_view("a"), number=3, facts=[made(2, uses=1).model_copy(update={"time": at(9)})]
    )
    recorded.write(again.model_copy(update={"after": 1}))

    (shown,) = recorded.read(grants.listed, at(1), status="all")
    assert (shown.status, len(shown.used)) == ("used-up", 1)


def test_a_grant_counts_no_more_when_its_run_was_rewound_to_before_it(recorded: Recorded) -> None:
    recorded.write(batch(run_view("a"), facts=[fact(1)]))
    recorded.write(batch(run_view("a"), number=2, facts=[made(2)]))
    before = recorded.read(audit.contents, "a")[:-1]
    rewound = Rewound(at=1, salt="s", execution="e", time=at(3), actor="ben")
    recorded.write(
        batch(run_view("a"), number=3).model_copy(update={"after": 1, "rewound": rewound})
    )

    assert listed(recorded) == []
    assert take(recorded, call()) is None
    # The line of the rewind says so, and no other line has changed.
    *lines, rewind, _ = recorded.read(audit.contents, "a")
    assert lines == before
    assert (rewind["type"], rewind["actor"], rewind["data"]["kept"]) == ("run.rewound", "ben", 1)


def test_a_grant_goes_with_the_run_in_which_it_was_made(recorded: Recorded) -> None:
    view = run_view("a", status="completed")
    recorded.write(batch(view, facts=[made()]))
    (old,) = recorded.read(removing.ended_before, at(10))
    recorded.change(removing.remove, [old.row])
    assert listed(recorded) == []


def test_an_erased_run_has_used_what_it_used_and_is_not_named(recorded: Recorded) -> None:
    recorded.write(making(uses=1), batch(run_view("b", status="completed")))
    take(recorded, call())
    erasure = removing.Erasure(run_id="b", at=at(5), is_done=True)
    recorded.change(removing.bury, erasure, lambda _: "gone")

    assert take(recorded, call("c2", "c")) is None
    (shown,) = recorded.read(grants.listed, at(5), status="all")
    assert [use.run_id for use in shown.used] == [""]


def test_the_terms_of_a_grant_are_sealed_and_need_the_key(
    database_url: str,
) -> None:
    wanted = call(arguments={"to": "bob"})
    with opened(database_url, "k") as sealed, opened(database_url) as keyless:
        sealed.write(making(same={"to": "bob"}))
        document = keyless.read(lambda tx: tx.connection.scalars(select(table.c.document)).one())
        assert document.startswith("sealed:")
        assert take(sealed, wanted) == "g"
        assert take(keyless, wanted) is None
        assert listed(keyless) == []
