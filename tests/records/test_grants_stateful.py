"""Remembered approvals under any sequence of events: no call runs under a grant that is revoked, used up
or over, or that allows more than its maker may.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from recorded import NOON, alone, batch, fact, run_view

from abeyance.core.approvals import UNVOUCHED, Grant, Wanted, as_json
from abeyance.core.policy import Principal
from abeyance.errors import Code, Refusal
from abeyance.records import grants
from abeyance.records.batch import Batch
from abeyance.records.writing import write

RUNS = ("a", "b")
PEOPLE = ("ada", "ben")
TO = st.sampled_from(["x", "x", "y"])
HOURS = st.sampled_from([1, 8, 30])


class Standing(RuleBasedStateMachine):
    """A deployment whose people make and revoke grants, and whose calls look for a grant.

    This model keeps its own account beside the records: `ended` has the revoked grants, and `used` the
    calls that took a use of each grant.
    """

    def __init__(self) -> None:
        super().__init__()
        self.tx, self.take_back = alone()
        self.now = NOON
        self.made: dict[str, Grant] = {}
        self.ended: set[str] = set()
        self.used: dict[str, set[str]] = {}
        self.batches: dict[str, list[Batch]] = {run_id: [] for run_id in RUNS}
        self.events = dict.fromkeys(RUNS, 0)
        self.capable: dict[str, bool] = dict.fromkeys(PEOPLE, True)

    def teardown(self) -> None:
        self.take_back()

    @initialize(is_known=st.booleans())
    def some_deployments_have_a_file_of_tokens(self, is_known: bool) -> None:
        self.is_known = is_known

    def hand_over(self, run_id: str, facts: list[Any]) -> None:
        told = self.batches[run_id]
        number = len(told) + 1
        made = batch(run_view(run_id), number=number, facts=facts, active_at=self.now)
        before = made.model_copy(update={"facts_before": self.events[run_id] - len(facts)})
        told.append(before)
        write(self.tx, [before])

    @rule(
        run_id=st.sampled_from(RUNS),
        by=st.sampled_from(PEOPLE),
        hours=HOURS,
        uses=st.sampled_from([None, 1, 2]),
        is_of_run=st.booleans(),
        is_issued=st.booleans(),
        to=TO,
    )
    def somebody_remembers(
        self,
        run_id: str,
        by: str,
        hours: int,
        uses: int | None,
        *,
        is_of_run: bool,
        is_issued: bool,
        to: str,
    ) -> None:
        id_ = f"g{len(self.made)}"
        self.events[run_id] += 1
        grant = Grant(
            id=id_,
            tool="pay",
            declaration="d",
            graph="refund",
            run_id=run_id if is_of_run else None,
            same={"to": to},
            below={"amount": 100},
            by=by,
            capability="pay",
            made_at=self.now,
            until=self.now + timedelta(hours=hours),
            uses=uses,
            is_issued=is_issued,
        )
        number = self.events[run_id]
        self.made[id_] = grant
        self.used[id_] = set()
        told = {"data": {"id": f"{run_id}.q", "grant": id_}, "audit": {"grant": as_json(grant)}}
        self.hand_over(run_id, [fact(number, "approval.remembered", **told)])

    @rule(run_id=st.sampled_from(RUNS))
    def a_batch_comes_once_more(self, run_id: str) -> None:
        if self.batches[run_id]:
            again = self.batches[run_id][-1]
            write(self.tx, [again])

    @precondition(lambda self: self.made)
    @rule(number=st.integers(0, 3), by=st.sampled_from([*PEOPLE, "olga"]))
    def somebody_revokes(self, number: int, by: str) -> None:
        def check(grant: Grant) -> None:
            if by not in ("olga", grant.by):
                raise Refusal(Code.CAPABILITY_REQUIRED, "not theirs")

        id_ = f"g{number % len(self.made)}"
        about: dict[str, Any] = {"by": by, "now": self.now, "check": check}
        try:
            grants.revoke(self.tx, id_, **about)
        except Refusal:
            return
        self.ended.add(id_)

    @rule(by=st.sampled_from(PEOPLE))
    def somebody_loses_or_gains_the_capability(self, by: str) -> None:
        self.capable[by] = not self.capable[by]

    @rule(minutes=st.sampled_from([1, 59, 61, 23 * 60]))
    def time_passes(self, minutes: int) -> None:
        self.now += timedelta(minutes=minutes)

    def may(self, grant: Grant) -> bool:
        maker = None
        if self.is_known:
            capabilities = ("pay",) if self.capable[grant.by] else ("runs:read",)
            maker = Principal(subject=grant.by, capabilities=capabilities)
        return grant.holds(self.now, maker, is_known=self.is_known)

    def wanted(
        self, run_id: str, name: str, amount: int = 99, to: str = "x", declaration: str = "d"
    ) -> Wanted:
        return Wanted(
            tool="pay",
            declaration=declaration,
            graph="refund",
            run_id=run_id,
            origin=f"{run_id}-first",
            call=name,
            arguments={"amount": amount, "to": to},
        )

    def found(self, call: Wanted, *, takes: bool) -> str | None:
        """Return the grant that a call finds. It must be one that counts; None only if none does."""
        find = grants.take if takes else grants.covering
        about: dict[str, Any] = {"now": self.now, "may": self.may}
        found = find(self.tx, call, **about)
        expected: set[str | None] = {id_ for id_ in self.made if self.covers(id_, call)}
        id_ = None if found is None else found.id
        assert id_ in (expected or {None})
        return id_

    @precondition(lambda self: self.made)
    @rule(run_id=st.sampled_from(RUNS), number=st.integers(1, 3))
    def a_call_is_to_run(self, run_id: str, number: int) -> None:
        id_ = self.found(self.wanted(run_id, f"c{number}"), takes=True)
        if id_ is not None:
            self.used[id_].add(f"{run_id} c{number}")

    @invariant()
    def a_call_finds_what_counts_and_nothing_else(self) -> None:
        for run_id in RUNS if self.made else ():
            for other in ({}, {"amount": 100}, {"to": "y"}, {"declaration": "e"}):
                self.found(self.wanted(run_id, "c1", **other), takes=False)

    def covers(self, id_: str, call: Wanted) -> bool:
        """Return whether a grant lets a call run, by the model alone."""
        grant, amount = self.made[id_], call.arguments["amount"]
        place = f"{call.run_id} {call.call}"
        has_room = grant.uses is None or place in self.used[id_] or len(self.used[id_]) < grant.uses
        return (
            self.counts(id_, grant)
            and has_room
            and call.declaration == "d"
            and grant.run_id in (None, call.run_id)
            and call.arguments["to"] == grant.same["to"]
            and amount < 100
        )

    def counts(self, id_: str, grant: Grant) -> bool:
        if id_ in self.ended or self.now >= grant.until:
            return False
        if self.is_known:
            return self.capable[grant.by]
        return grant.is_issued or self.now < grant.made_at + UNVOUCHED

    @invariant()
    def no_grant_has_more_uses_than_it_was_given(self) -> None:
        about = (self.tx, self.now)
        standing = {each.id for each in grants.listed(*about)}
        for shown in grants.listed(*about, status="all"):
            assert (shown.id in standing) == (shown.status == "standing")
            assert {f"{use.run_id} {use.call}" for use in shown.used} == self.used[shown.id]
            assert shown.uses is None or len(shown.used) <= shown.uses


# The examples are the same each time, so that no change fails on one that others never met.
Standing.TestCase.settings = settings(
    # The profile `wide` has two hundred.
    max_examples=20 if settings().max_examples <= 100 else settings().max_examples // 2,
    stateful_step_count=25,
    deadline=None,
    derandomize=True,
)
TestStanding = Standing.TestCase
