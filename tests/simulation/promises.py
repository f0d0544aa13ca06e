"""The promises to every run, checked after each of its steps.

The steps are the core's, collected where the real workflow calls the core. A step counts once the server
has the completed workflow task: the steps of a worker that died before are forgotten, as in reality.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from core_shown import Shown
from core_watch import Watch

from abeyance.commands import REWIND_TO_START
from abeyance.core import events, machine, run_retry
from abeyance.core.effects import Effect, Publish, StopNode
from abeyance.core.json import Json, sha256
from abeyance.core.ledger import Receipt
from abeyance.core.policy import EVERYTHING
from abeyance.core.state import RunState, Status, copied
from abeyance.core.visit import Nested
from abeyance.errors import Refusal
from abeyance.storage.converter import of_run
from tests.simulation.execution import Execution
from tests.simulation.graphs import Effects, plain
from tests.simulation.payloads import CLEAR, SEALED, opened_job
from tests.simulation.purse import Purse
from tests.simulation.recorded import Recorded
from tests.simulation.resets import Reset, line, stands
from tests.simulation.server import Broken
from tests.simulation.tasks import Attempt
from tests.simulation.versions import moved


@dataclass(frozen=True)
class Rewound:
    """The workflow tells the core of a reset: the era before everything else, the salt last."""

    salt: str
    is_era: bool


@dataclass(frozen=True)
class Refused:
    """The core refuses an event, but keeps the changes that the beginning of the task has made."""

    event: events.Event


Step = tuple[RunState, events.Event | Rewound | Refused, RunState, tuple[Effect, ...]]


class Steps:
    """Collects the steps of the core while workers run, and the resets that runs are told of."""

    def __init__(self) -> None:
        self._steps: list[Any] = []

    def begin(self) -> None:
        self._steps = []

    def taken(self) -> list[Any]:
        return self._steps

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Collect each step inside the `with` block."""
        advance = machine.advance
        begin_era, take_salt = run_retry.begin_era, run_retry.take_salt

        def telling(tell: Callable[..., None], *, is_era: bool) -> Any:
            def telling_of(state: RunState, salt: str, *now: datetime) -> None:
                before = copied(state)
                tell(state, salt, *now)
                self._steps.append((before, Rewound(salt, is_era), copied(state), ()))

            return telling_of

        def told(state: RunState, event: events.Event) -> tuple[Effect, ...]:
            before = copied(state)
            try:
                effects = advance(state, event)
            except Refusal:
                self._steps.append((before, Refused(event), copied(state), ()))
                raise
            self._steps.append((before, event, copied(state), effects))
            return effects

        machine.advance = told
        run_retry.begin_era = telling(begin_era, is_era=True)
        run_retry.take_salt = telling(take_salt, is_era=False)
        try:
            yield
        finally:
            machine.advance = advance
            run_retry.begin_era, run_retry.take_salt = begin_era, take_salt


class Promises:
    """The promises to one run. `accepted` are the answers that got a receipt, `admitted` the messages
    that did, and `migrated_to` the versions to which callers have migrated the run.
    """

    def __init__(self, effects: Effects) -> None:
        self.watch = Watch()
        self.shown = Shown()
        self.state: RunState | None = None
        self.effects = effects
        self.accepted: list[tuple[str, str, Json]] = []
        self.answered: set[tuple[str, str, str]] = set()
        self.admitted: set[str] = set()
        self.migrated_to: set[str] = set()
        self.steps = 0
        self.order = Order()
        self.recorded = Recorded()
        self._keys: set[str] = set()
        self.purse: Purse | None = None
        self._point: Reset | None = None
        """The reset that the run has not completed yet."""
        self._is_told = False
        self._versions: set[str] = set()
        self._given_up: set[str] = set()
        """The visits that the run has abandoned while their code ran."""
        self._ever: set[str] = set()
        """The messages that the run had before it was rewound."""
        self._shown: set[tuple[str, str]] = set()
        self._shown_before: set[tuple[str, str]] = set()
        """The pairs of question and digest that people were shown before the latest rewind."""

    def committed(self, execution: Execution, attempt: Attempt) -> None:
        """Check the steps of a completed workflow task against the promises."""
        for before, event, after, effects in attempt.seen:
            self.steps += 1
            # A retry continues from the state in which the run ended.
            is_retry = before.resumption is not None
            is_known = self.state is None or before is self.state or is_retry
            if not is_known and before != self.state:
                raise Broken(f"the run goes on from another state than it had: {event}")
            if not isinstance(event, Rewound | Refused):
                self._check_right(before, event, after, effects)
            self._saw(before, event, after, effects)
            self._check_shown(after)
            if not isinstance(event, Rewound | Refused):
                self.watch.check(after)
                self.order.saw(after)
        if self.purse is not None and self.purse.faults:
            raise Broken(self.purse.faults[0])
        self._check_back(attempt)
        self._check_outcome(execution, attempt)
        forgotten = execution.server.forgotten
        repeated = self.effects.repeated
        if again := [each for each in repeated if forgotten.isdisjoint(each[:2])]:
            raise Broken(f"a step that was done is done again: {again}")
        if other := {at: keys for at, keys in self.effects.keys.items() if len(keys) > 1}:
            raise Broken(f"attempts at a visit have different keys: {other}")
        if shared := {key: items for key, items in self.effects.items.items() if len(items) > 1}:
            raise Broken(f"other services take one item for another: {shared}")
        self.recorded.is_committed(execution)
        if self.state is not None:
            self.recorded.at_rest(execution, self.state)

    def _saw(
        self,
        before: RunState,
        event: events.Event | Rewound | Refused,
        after: RunState,
        effects: tuple[Effect, ...],
    ) -> None:
        self.state = after
        if isinstance(event, Refused):
            self.recorded.saw_refused()
            return
        if _is_retry(before, event):
            self.watch.goes_on(before)
            self.recorded.goes_on()
            # The run did not wait for the code of abandoned visits, so the retry does it all again.
            self.effects.forget(lambda visit, _: visit not in self._given_up)
            self._given_up = set()
        if isinstance(event, Rewound):
            if event.is_era:
                self.recorded.was_rewound(event.salt)
            return
        self._counts_once(event, effects)
        if isinstance(event, events.Migrated):
            self._versions.add(event.versions[1])
            self._keys_are_of(before)
            self.watch.moved(lambda address: moved(address, after.spec))
        self.watch.saw(before, event, after, effects)
        self.shown.saw(before, event, after, effects)
        if self.purse is not None:
            self.purse.saw(before, event)
        self.recorded.saw(event, after, effects)
        stops = (each for each in effects if isinstance(each, StopNode))
        self._given_up |= {each.visit for each in stops if each.abandon}

    def rewound(self, execution: Execution) -> None:
        """Begin anew after a reset of the run: only the steps in the new history still count."""
        self._point, self._is_told = execution.server.resets[-1], False
        self._ever |= {*self.watch.accepted}
        self._shown_before = {*self._shown}
        self.watch, self.shown, self.state, self._keys = Watch(), Shown(), None, set()
        self.recorded.begins_anew(execution.server.resets)
        for each in reversed([*line(execution)]):
            for done in each.done:
                for step in done.seen:
                    self._saw(*step)
        self.effects.forget(lambda _, token: stands(token, execution))
        if self._versions:
            self._keys_are_of(self.state)

    def _keys_are_of(self, state: RunState | None) -> None:
        """Keep the keys of visits that have begun: after a rewind others may begin under a new name."""
        visits = {} if state is None else state.visits
        begun = {plain(at) for at, visit in visits.items() if visit.activations}
        self.effects.keys = {k: v for k, v in self.effects.keys.items() if k in begun}

    def _check_shown(self, state: RunState) -> None:
        """Check that no open question has a digest that people were shown before the rewind."""
        for entry in state.ledger.open.values():
            if (entry.id, entry.digest) in self._shown_before:
                raise Broken(f"{entry.id} has the digest that it had before the rewind")
            self._shown.add((entry.id, entry.digest))

    def _check_back(self, attempt: Attempt) -> None:
        """Check that the run learned of its rewind, and that the question is open again under its id."""
        point = self._point
        if point is None:
            return
        told = [event for _, event, *_ in attempt.seen]
        if Rewound(point.salt, is_era=True) in told:
            self._is_told = True
        if not self._is_told:
            raise Broken(f"the run is not told of {point}")
        if Rewound(point.salt, is_era=False) not in told:
            # After a rewind to the start, the run first reads the values that the rewind sets.
            return
        self._point = None
        opened = {id_ for *_, after, _ in attempt.seen for id_ in after.ledger.open}
        if any(isinstance(event, events.Paused) for event in told):
            # A paused run asks when it is resumed; a question due in this task then has another id.
            return
        if point.to not in {*opened, REWIND_TO_START}:
            raise Broken(f"the question of {point} is not open again")

    def _check_right(
        self,
        before: RunState,
        event: events.Event,
        after: RunState,
        effects: tuple[Effect, ...],
    ) -> None:
        """Check that an answer counts once, unchanged, and only from a person with the capability."""
        if not isinstance(event, events.Responded):
            return
        who = event.principal
        # Another answer in the same call may reopen a question that has votes.
        reopened = {
            each.data.get("id")
            for each in effects
            if isinstance(each, Publish) and each.type == "interrupt.reopened"
        }
        for id_, answer in event.answers.items():
            entry, later = before.ledger.open.get(id_), after.ledger.open.get(id_)
            if entry is None or (later == entry and id_ not in reopened):
                continue
            needed = entry.requested_capability
            if needed is not None and not {needed, EVERYTHING} & {*who.capabilities}:
                raise Broken(f"{who} has answered {id_}: {entry.requested_capability}")
            if event.digests.get(id_, entry.digest) != entry.digest:
                raise Broken(f"{who} has answered {id_}, and has seen {event.digests[id_]}")
            settled = after.ledger.settled.get(id_)
            other = settled is not None and settled.answer_sha256 != sha256(answer)
            if other and entry.terms is None:
                raise Broken(f"another answer than was given to {id_}: {settled}")
            self.answered.add((who.subject, id_, sha256(answer)))

    def _counts_once(self, event: events.Event, effects: tuple[Effect, ...]) -> None:
        """Check that a call that is repeated with its key has no second effect."""
        if not isinstance(event, events.Keyed) or event.key is None:
            return
        who = event.principal.subject if hasattr(event, "principal") else event.actor
        if event.key in self._keys and any(
            isinstance(each, Publish) and each.actor == who for each in effects
        ):
            raise Broken(f"a call was repeated, and has a second effect: {event}")
        self._keys.add(event.key)

    @staticmethod
    def _check_outcome(execution: Execution, attempt: Attempt) -> None:
        """Check that the run takes the outcome of a visit as its code returned it."""
        converter = of_run(SEALED if execution.server.is_sealed else CLEAR, execution.workflow_id)
        known = {
            event.visit: event.outcome
            for _, event, *_ in attempt.seen
            if isinstance(event, events.VisitEnded)
        }
        for job in (job for step in attempt.steps for job in step):
            resolved = job.resolve_activity
            if not resolved.result.HasField("completed") or resolved.is_local:
                continue
            resolved = opened_job(job, converter).resolve_activity
            address = execution.visits[resolved.seq]
            if address not in known:
                continue
            returned = json.loads(resolved.result.completed.result.data)["outcome"]["kind"]
            if known[address].kind != returned:
                what = f"{address} came to {returned}, and its run takes it as {known[address]}"
                raise Broken(what)

    def kept_at_the_end(self, execution: Execution) -> None:
        """Check an ended run against the receipts that its callers got."""
        state = self.state
        assert state is not None
        if not state.finished or execution.is_open:
            raise Broken(f"the run does not end: {state.status}, {state.visits}")
        for who, id_, answer in self.accepted:
            if (who, id_, sha256(answer)) not in self.answered:
                raise Broken(f"the answer of {who} to {id_} was accepted, and is lost")
        if lost := self.admitted - {*self.watch.accepted} - self._ever:
            raise Broken(f"messages were accepted, and are lost: {lost}")
        if lost := self.migrated_to - self._versions:
            raise Broken(f"the run was said to be migrated, and was not: {lost}")
        self.recorded.hold(execution, state)

    def same_as_without_faults(self, other: Promises) -> None:
        """Compare status and values with the same run in a schedule without faults."""
        mine, its = self.state, other.state
        assert mine is not None
        assert its is not None
        # A run that does not end by itself is cancelled, at a time that may differ.
        is_cancelled = Status.CANCELLED in (mine.status, its.status)
        if is_cancelled or not (self.order.is_free and other.order.is_free):
            return
        is_one_by_one = self.order.is_one_by_one and other.order.is_one_by_one
        if not is_one_by_one and its.status is not Status.COMPLETED:
            # When a branch fails or halts, timing decides how far the other branches are.
            return
        if (mine.status, _unordered(mine)) != (its.status, _unordered(its)):
            raise Broken(
                f"without faults the run is {its.status} with {dict(its.root.values)}, and with them "
                f"{mine.status} with {dict(mine.root.values)}"
            )

    def was_accepted(self, execution: Execution, receipt: Receipt, answer: Json) -> None:
        """Note that a caller got a receipt for an answer."""
        self.recorded.has_receipt(execution, receipt)
        self.accepted.append((receipt.answered_by, receipt.interrupt_id, answer))


def _is_retry(before: RunState, event: events.Event | Rewound) -> bool:
    """Return whether a step is the first one of a retry, which continues an ended run."""
    return isinstance(event, events.Restored) and before.resumption is not None


class Order:
    """Finds out whether the order of events can change the result of a run."""

    def __init__(self) -> None:
        self.is_one_by_one = True
        """Whether no two visits were ever under way at once."""
        self._is_once = True
        """Whether each node is visited once, no gate is asked again, and no `flag` of a route changes."""
        self._has_deadline = False
        self._flags: set[str] = set()

    @property
    def is_free(self) -> bool:
        return not self._has_deadline and (self.is_one_by_one or self._is_once)

    def saw(self, state: RunState) -> None:
        """Take the state after a step of the run."""
        if not self.is_free:
            return
        at_work = [each for each in state.visits.values() if not isinstance(each.state, Nested)]
        self.is_one_by_one = self.is_one_by_one and len(at_work) < 2
        self._has_deadline = self._has_deadline or any(
            each.deadline is not None for each in state.ledger.open.values()
        )
        for scope in state.scopes.values():
            is_once = max(scope.ordinals.values(), default=0) < 2 and not scope.fans
            self._is_once = self._is_once and is_once
            self._flags.add(sha256(scope.values.get("flag")))
        self._is_once = self._is_once and len(self._flags) < 2


def _unordered(state: RunState) -> dict[str, Json]:
    """Return the values with a sorted `log`, because branches append to it in any order."""
    log: Any = state.root.values["log"]
    return {**state.root.values, "log": sorted(map(repr, log))}
