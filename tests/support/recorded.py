"""Short builders for the batches that runs hand over to the records, and access to the records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from hashlib import sha256
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection, create_engine, event, insert
from sqlalchemy.pool import StaticPool

from abeyance import views
from abeyance.core.state import Status
from abeyance.keyring import Keyring
from abeyance.records.batch import Batch, Fact, Written
from abeyance.records.database import Database, Scope
from abeyance.records.documents import Documents, Transaction
from abeyance.records.tables import deployments, metadata
from abeyance.records.writing import write

P = ParamSpec("P")
T = TypeVar("T")
NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
ENDED = (Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.HALTED)


@cache
def _connection() -> Connection:
    made = create_engine("sqlite://", poolclass=StaticPool).connect()
    made.exec_driver_sql("PRAGMA foreign_keys=ON")
    metadata.create_all(made)
    made.commit()
    return made


def alone() -> tuple[Transaction, Callable[[], None]]:
    """Return a transaction that a single example uses, and a function that rolls it back."""
    made = _connection()
    take_back = made.begin().rollback
    own = insert(deployments).values(namespace="n", task_queue="q")
    deployment = made.execute(own.returning(deployments.c.id)).scalar_one()
    return Transaction(made, Documents(Keyring({})), deployment), take_back


def at(minutes: float) -> datetime:
    """Return the moment so many minutes after noon."""
    return NOON + timedelta(minutes=minutes)


def run_view(run_id: str, *, minute: float = 0, **fields: Any) -> views.RunView:
    """Return a run that started so many minutes after noon; with a final status it ended at once."""
    status = fields.get("status", Status.AWAITING_INPUT)
    about = {
        "graph": "refund",
        "graph_version": "1",
        "status": status,
        "created_at": at(minute),
        "updated_at": at(minute),
        "ended_at": at(minute) if status in ENDED else None,
    }
    return views.RunView(**{"run_id": run_id, **about, **fields})


def question(run_id: str, name: str, *, minute: float = 0, **fields: Any) -> views.InterruptView:
    """Return an open question, asked so many minutes after noon, with the id `<run_id>.<name>`."""
    about = {
        "id": f"{run_id}.{name}",
        "graph": "refund",
        "name": name,
        "kind": "question",
        "address": name,
        "prompt": "Pay?",
        "created_at": at(minute),
        "status": "open",
    }
    return views.InterruptView(**{"run_id": run_id, **about, **fields})


def fact(number: int, type_: str = "node.started", **fields: Any) -> Fact:
    """Return an event of a run."""
    return Fact(**{"number": number, "time": at(number), "type": type_, **fields})


def batch(
    view: views.RunView,
    *questions: views.InterruptView,
    number: int = 1,
    origin: str | None = None,
    active_at: datetime | None = None,
    facts: Sequence[Fact] = (),
    claim: str | None = None,
) -> Batch:
    """Return a batch of a run; its origin is named after the run unless another is given."""
    return Batch(
        number=number,
        after=number - 1,
        facts_before=facts[0].number - 1 if facts else 0,
        origin=origin or f"{view.run_id}-first",
        view=view,
        active_at=active_at or view.updated_at,
        questions=list(questions),
        facts=list(facts),
        claim=claim,
    )


def asked(
    run_id: str, name: str = "pay", *, run: Mapping[str, Any] | None = None, **fields: Any
) -> Batch:
    """Return the first batch of a run that asks one question."""
    view = run_view(run_id, **(run or {}))
    return batch(view, question(run_id, name, **{"graph": view.graph, **fields}))


def handed(
    number: int,
    *questions: views.InterruptView,
    after: int,
    types: Sequence[str] = (),
    before: int = 0,
    task: str | None = None,
    **changes: object,
) -> Batch:
    """Return a batch of the run `r` that follows another batch, with events of these types."""
    facts = [fact(each, type_, task=task) for each, type_ in enumerate(types, before + 1)]
    about = {"after": after, "facts_before": before, "facts": facts, **changes}
    return batch(run_view("r"), *questions, number=number).model_copy(update=about)


@contextmanager
def opened(url: str, key: str = "") -> Iterator[Recorded]:
    """Open the records in a database as a process that only has this key."""
    keys = Keyring({key: sha256(key.encode()).digest()} if key else {})
    with closing(Database(url, keys=keys)) as database:
        yield Recorded(database)


class Recorded:
    """The records of one deployment."""

    def __init__(self, database: Database, queue: str = "ours") -> None:
        self.database = database
        with database.writing() as connection:
            self.deployment = database.deployment(connection, Scope("n", queue))

    def transaction(self, connection: Connection) -> Transaction:
        return Transaction(connection, self.database.documents, self.deployment)

    def write(self, *batches: Batch) -> list[Written]:
        return self.change(write, batches)

    def change(
        self, what: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        with self.database.writing() as connection:
            return what(self.transaction(connection), *args, **kwargs)

    def read(
        self, query: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        with self.database.reading() as connection:
            return query(self.transaction(connection), *args, **kwargs)

    @contextmanager
    def statements(self) -> Iterator[list[str]]:
        """Yield a list that collects the SELECT statements inside the block."""
        seen: list[str] = []

        def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
            if statement.startswith("SELECT"):
                seen.append(statement)

        event.listen(self.database._engine, "before_cursor_execute", note)
        yield seen
        event.remove(self.database._engine, "before_cursor_execute", note)
