"""Grants in the database: made by an event, used by calls, revoked, taken back and discarded."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from recorded import Recorded, at, batch, fact, run_view
from sqlalchemy import select

from abeyance.core.grants import Grant, Wanted, as_json
from abeyance.errors import Code, Refusal
from abeyance.filters import AuditFilter
from abeyance.keyring import Keyring
from abeyance.records import audit, grants, removing
from abeyance.records.batch import Batch, Fact, Rewound
from abeyance.records.database import Database
from abeyance.records.grant_views import GrantView
from abeyance.records.tables import grants as table
from abeyance.records.writing import fill


def grant(**fields: Any) -> Grant:
    about = {"id": "g", "tool": "pay", "declaration": "d", "graph": "refund", "by": "ada"}
    return Grant(**{**about, "made_at": at(0), "until": at(600), **fields})


def made(number: int = 1, **fields: Any) -> Fact:
    """The event of a yes that is remembered."""
    this = grant(**fields)
    data = {"id": "a.q", "grant": this.id, "tool": this.tool}
    return fact(number, "approval.remembered", data=data, audit={"grant": as_json(this)})


def making(run_id: str = "a", **fields: Any) -> Batch:
    """The batch of a run in which somebody had a yes remembered."""
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
    (shown,) = listed(recorded)
    assert [(use.run_id, use.call) for use in shown.used] == [("b", "c1"), ("b", "c2")]


def test_a_later_run_of_the_same_id_takes_a_use_of_its_own(recorded: Recorded) -> None:
    recorded.write(making(uses=1))
    assert take(recorded, call()) == "g"
    assert take(recorded, call(origin="b-second")) is None


def test_of_ten_calls_at_once_one_has_the_last_use(recorded: Recorded) -> None:
    recorded.write(making(uses=1))
    with ThreadPoolExecutor(10) as threads:
        found = [*threads.map(lambda number: take(recorded, call(f"c{number}")), range(10))]

    assert sorted(map(str, found)) == ["None"] * 9 + ["g"]
    assert len(listed(recorded)[0].used) == 1


def test_a_grant_that_is_used_up_makes_room_for_another(recorded: Recorded) -> None:
    recorded.write(making("a", uses=1), making("c", id="h", uses=1))
    assert [take(recorded, call(name)) for name in ("c1", "c2", "c3")] == ["g", "h", None]


def test_a_grant_of_one_run_is_of_no_other_run_of_its_id(recorded: Recorded) -> None:
    recorded.write(making("a"))
    own = grant(id="own", run_id="a")
    facts = [fact(2, "approval.remembered", data={"grant": "own"}, audit={"grant": as_json(own)})]
    recorded.change(grants.revoke, "g", by="ben", now=at(0), check=lambda _: None)
    recorded.write(batch(run_view("a"), number=2, facts=facts))

    assert take(recorded, call(run_id="b")) is None
    assert take(recorded, call(run_id="a", origin="a-second")) is None
    assert take(recorded, call(run_id="a")) == "own"


@pytest.mark.parametrize("minute", [600, 601])
def test_a_grant_that_is_over_covers_nothing_and_is_not_listed(
    recorded: Recorded, minute: float
) -> None:
    recorded.write(making())
    assert take(recorded, call(), minute) is None
    assert listed(recorded, minute) == []


def test_a_grant_whose_maker_may_not_covers_nothing(recorded: Recorded) -> None:
    recorded.write(making())
    assert recorded.change(grants.take, call(), now=at(1), may=lambda _: False) is None
    assert listed(recorded)[0].used == []


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
    # Neither a new call nor one that has taken its use.
    assert [take(recorded, call(name)) for name in ("c2", "c3")] == [None, None]
    assert listed(recorded) == []
    with pytest.raises(Refusal) as refused:
        recorded.change(grants.revoke, "unknown", by="ben", now=at(1), check=lambda _: None)
    assert refused.value.code is Code.UNKNOWN_GRANT


def test_the_audit_says_who_revoked_a_grant_and_when(recorded: Recorded) -> None:
    recorded.write(batch(run_view("a"), facts=[made(1), made(2, id="h")]))
    revoked = recorded.change(grants.revoke, "g", by="ben", now=at(5), check=lambda _: None)
    recorded.change(grants.revoke, "g", by="carol", now=at(6), check=lambda _: None)

    assert (revoked.revoked_at, revoked.revoked_by) == (at(5), "ben")
    everything = AuditFilter(types=("approval.remembered",))
    exports = recorded.read(audit.contents, "a")[:-1], recorded.read(audit.of_all, everything)[0]
    for first, second in exports:
        assert first["revoked"] == {"at": "2026-03-02T12:05:00Z", "by": "ben"}
        assert "revoked" not in second
    assert [each.revoked_by for each in listed(recorded)] == [None]


def test_grants_are_listed_and_counted_by_their_makers(recorded: Recorded) -> None:
    recorded.write(making("a"), making("c", id="h", by="bob"))
    assert [each.id for each in listed(recorded)] == ["g", "h"]
    assert [each.id for each in recorded.read(grants.listed, at(1), "bob")] == ["h"]
    assert recorded.read(grants.counting, "bob", at(1)) == 1
    assert recorded.read(grants.counting, "bob", at(600)) == 0


def test_a_grant_is_written_once_and_stays_revoked_when_it_comes_again(recorded: Recorded) -> None:
    recorded.write(making())
    recorded.change(grants.revoke, "g", by="ben", now=at(1), check=lambda _: None)
    with recorded.database.writing() as connection:
        fill(connection, recorded.database.documents, recorded.deployment, making())
    assert listed(recorded) == []


def test_a_grant_that_is_made_anew_counts_no_more_because_it_may_have_been_revoked(
    recorded: Recorded,
) -> None:
    told = making(), batch(run_view("a"), number=2, facts=[made(2, id="h")])
    with recorded.database.writing() as connection:
        # The second first: nothing is missing of a run, and then something is.
        for each in reversed(told):
            fill(connection, recorded.database.documents, recorded.deployment, each)

    assert listed(recorded) == []
    assert take(recorded, call()) is None
    recorded.write(batch(run_view("a"), number=3, facts=[made(3, id="i")]))
    assert [each.id for each in listed(recorded)] == ["i"]


def test_what_is_made_anew_has_the_uses_of_its_calls_whichever_run_comes_first(
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

    assert [len(each.used) for each in listed(recorded)] == [1]


def test_a_grant_counts_no_more_when_its_run_was_rewound_to_before_it(recorded: Recorded) -> None:
    recorded.write(batch(run_view("a"), facts=[fact(1)]))
    recorded.write(batch(run_view("a"), number=2, facts=[made(2)]))
    rewound = Rewound(at=1, salt="s", execution="e", time=at(3), actor="ben")
    recorded.write(
        batch(run_view("a"), number=3).model_copy(update={"after": 1, "rewound": rewound})
    )

    assert listed(recorded) == []
    assert take(recorded, call()) is None
    lines = recorded.read(audit.contents, "a")
    (line,) = [each for each in lines if each["type"] == "approval.remembered"]
    assert line["revoked"]["by"] == "ben"


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
    assert [use.run_id for use in listed(recorded)[0].used] == [""]


def test_what_a_grant_is_for_is_sealed_and_lets_nothing_run_without_the_key(
    database_url: str,
) -> None:
    sealed = Database(database_url, keys=Keyring.parse(f"k:{'A' * 43}="))
    Recorded(sealed).write(making(same={"to": "bob"}))
    with sealed.reading() as connection:
        document = connection.execute(select(table.c.document)).scalar_one()
    assert document.startswith("sealed:")
    wanted = call(arguments={"to": "bob"})
    assert take(Recorded(sealed), wanted) == "g"
    sealed.close()
    keyless = Database(database_url)
    assert take(Recorded(keyless), wanted) is None
    assert listed(Recorded(keyless)) == []
    keyless.close()
