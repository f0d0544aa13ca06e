"""Batches that a run tells and records in any order, with lost workflow tasks and a database that comes
and goes: at rest the records agree with the run.
"""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from recorded import alone, fact, question, run_view
from sqlalchemy import select

from abeyance.records.batch import BEGINNING, Batch, Fact, Written, next_number
from abeyance.records.database import Scope
from abeyance.records.tables import events, questions
from abeyance.records.writer import News, UnwrittenNews
from abeyance.records.writing import write

SCOPE = Scope("n", "q")
NAMES = st.sampled_from(["p", "q"])


@dataclass
class Known:
    """The state of a run: its events, the status of its questions, and how much of it is recorded."""

    facts: list[Fact] = field(default_factory=list)
    questions: dict[str, str] = field(default_factory=dict)
    recorded: int = 0
    after: int = BEGINNING


class Telling(RuleBasedStateMachine):
    """A run whose workflow tasks may come to nothing, and the writer of its worker.

    `kept` is the state to which the run returns if the task under way comes to nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.tx, self.take_back = alone()
        self.untold = UnwrittenNews()
        self.is_away = False
        self.clock = BEGINNING
        self.known = Known()

    def teardown(self) -> None:
        """Bring the database back, write what was told, and compare the records with the run."""
        self.is_away = False
        self.writer_goes_on()
        # No deployment is selected, because the example has the database to itself.
        found = self.tx.connection.execute(
            select(events.c.type).order_by(events.c.number)
        ).scalars()
        asked = self.tx.connection.execute(select(questions.c.interrupt_id, questions.c.status))
        records = [*found], {row.interrupt_id: row.status for row in asked}
        self.take_back()
        told = {f"r.{name}": status for name, status in self.known.questions.items()}
        assert records == ([each.type for each in self.known.facts], told)

    @initialize()
    def the_run_begins(self) -> None:
        self.something_is_answered("p")
        self.kept = deepcopy(self.known)

    @rule()
    def code_ends(self) -> None:
        self.happens("node.completed")
        self.tell(self.batch())

    @precondition(lambda self: not self.is_away)
    @rule(name=NAMES)
    def something_is_answered(self, name: str) -> None:
        is_open = self.known.questions.get(name) == "open"
        self.known.questions[name] = "answered" if is_open else "open"
        self.happens("interrupt.answered" if is_open else "interrupt.opened")
        changed = {name}
        while changed:
            changed = {*self.record(changed).strays}

    @rule()
    def the_task_is_completed(self) -> None:
        self.kept = deepcopy(self.known)

    @rule()
    def the_task_comes_to_nothing(self) -> None:
        """The worker replays the run up to the lost task."""
        self.known = deepcopy(self.kept)
        self.tell(self.batch(*self.known.questions).model_copy(update={"is_whole": True}))

    @rule()
    def the_database_goes(self) -> None:
        self.is_away = True

    @rule()
    def the_database_comes(self) -> None:
        self.is_away = False

    @rule()
    def writer_goes_on(self) -> None:
        taken = self.untold.take(now=math.inf)
        for told in taken:
            if self.is_away:
                self.untold.add(told)
            else:
                self.write(told.batch)

    def happens(self, what: str) -> None:
        # An event in place of one that came to nothing is never exactly the same.
        self.clock += 1
        number = len(self.known.facts) + 1
        self.known.facts.append(fact(number, f"{what} {self.clock}"))

    def batch(self, *changed: str, gone: frozenset[str] = frozenset()) -> Batch:
        self.clock += 1
        known = self.known
        return Batch(
            number=self.clock,
            after=known.after,
            origin="first",
            view=run_view("r"),
            active_at=run_view("r").updated_at,
            questions=[
                question("r", name, status=known.questions[name])
                for name in changed
                if name in known.questions
            ],
            gone=[f"r.{name}" for name in gone],
            facts_before=known.recorded,
            facts=known.facts[known.recorded :],
        )

    def tell(self, batch: Batch) -> None:
        self.untold.add(News(lambda: SCOPE, batch, due=0.0))

    def record(self, changed: set[str]) -> Written:
        names = {name.removeprefix("r.") for name in changed}
        gone = names - {*self.known.questions}
        batch = self.batch(*names - gone, gone=frozenset(gone))
        written = self.write(batch)
        assert written.status == "written"
        self.untold.recorded(batch)
        self.known.recorded, self.known.after = len(self.known.facts), batch.number
        return written

    def write(self, batch: Batch) -> Written:
        (written,) = write(self.tx, [batch])
        return written


TestTelling = Telling.TestCase


def test_a_task_done_again_after_the_clock_was_set_back_has_another_number() -> None:
    latest, second = 5_000_000, 1_000_000
    again = [next_number(latest, latest - second + 1_000 * each) for each in range(500)]

    assert next_number(latest, latest + second) == latest + second
    assert min(again) > latest
    assert len({*again}) == len(again)
