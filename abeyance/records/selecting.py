"""The parts that all lists of records share: conditions, texts to search, and pages after a key.

A page begins after the key of the last row of the page before. So an answer in between moves no row to
another page, and a late page is as quick as the first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias, TypeVar

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Row,
    Text,
    func,
    literal,
    or_,
    select,
    tuple_,
)

from abeyance import views
from abeyance.core.json import Json
from abeyance.core.policy import ReadRights
from abeyance.records import cursors
from abeyance.records.cursors import Page
from abeyance.records.documents import Transaction
from abeyance.records.tables import deployments, labels, runs

T = TypeVar("T")
Condition: TypeAlias = ColumnElement[bool]
AnyRow: TypeAlias = Row[*tuple[Any, ...]]

_FEW: Final = 1_000
_RUNS: Final = 1_000
_HIGHEST: Final = 2**63
"""One more than the largest integer that a column can hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The order of a list: by the columns of a key that no two rows share, or reversed."""

    key: Sequence[Column[Any]]
    is_turned: bool = False

    def after(self, place: Sequence[Any]) -> Condition:
        """Return the condition of the rows after the one with this key."""
        own = tuple_(*self.key)
        values = [literal(v, BigInteger if isinstance(v, int) else Text) for v in place]
        return own < tuple_(*values) if self.is_turned else own > tuple_(*values)

    @property
    def terms(self) -> list[ColumnElement[Any]]:
        """The terms of an ORDER BY."""
        return [column.desc() if self.is_turned else column.asc() for column in self.key]


def page(
    tx: Transaction,
    columns: Sequence[ColumnElement[Any]],
    conditions: Collection[Condition],
    order: Order,
    *,
    criteria: Mapping[str, Json],
    cursor: str | None,
    limit: int,
) -> Page[AnyRow]:
    """Return a page of the rows of one table that fulfil the conditions.

    `criteria` identify the list, as JSON. Raises `invalid_body` for a cursor of another list.
    """
    table = order.key[0].table
    # If only few rows match, the database would read all rows to find them in the order of the list.
    few = tx.connection.scalars(select(table.c.id).where(*conditions).limit(_FEW + 1)).all()
    if len(few) <= _FEW:
        conditions, total = [table.c.id.in_(few)], len(few)
    else:
        counted = select(func.count()).select_from(table).where(*conditions)
        total = tx.connection.scalars(counted).one()
    query = select(*columns, *order.key).where(*conditions)
    if cursor is not None:
        query = query.where(order.after(_place(criteria, order, cursor)))
    rows = tx.connection.execute(query.order_by(*order.terms).limit(limit + 1)).all()
    next_cursor = None
    if len(rows) > limit:
        place = list(rows[limit - 1][len(columns) :])
        next_cursor = cursors.write(criteria, {"after": place})
    return Page(items=list(rows[:limit]), next_cursor=next_cursor, total=total)


def _place(criteria: Mapping[str, Json], order: Order, cursor: str) -> Sequence[Any]:
    match cursors.read(criteria, cursor):
        case {"after": [*place]} if len(place) == len(order.key) and all(
            map(_may_be_of, order.key, place)
        ):
            return place
        case _:
            raise cursors.unusable(cursor)


def _may_be_of(column: Column[Any], value: object) -> bool:
    if column.type.python_type is int:
        return type(value) is int and -_HIGHEST <= value < _HIGHEST
    return isinstance(value, str) and value.isprintable()


# A caller that waits for a run reads it again and again, and SQLAlchemy is slow to build conditions.
@lru_cache(_RUNS)
def the_run(deployment: int, run_id: str, origin: str | None = None) -> tuple[Condition, ...]:
    """Return the conditions of the row of the newest run with an id.

    With an `origin` they match no row if the newest run has another one.
    """
    own = (runs.c.deployment == deployment, runs.c.run_id == run_id, runs.c.is_newest)
    return own if origin is None else (*own, runs.c.origin == origin)


def readable(run: Column[int], reads: ReadRights) -> Iterator[Condition]:
    """Yield the conditions of the rows whose run a caller may see."""
    for name, values in reads.labels:
        yield labelled(run, [f"{name}={value}" for value in values])


def labelled(run: Column[int], either: Collection[str]) -> Condition:
    """Return the condition of the rows whose run has one of these labels."""
    return run.in_(select(labels.c.run).where(labels.c.label.in_(either)))


def labels_of(tx: Transaction, run: int) -> dict[str, str]:
    """Return the labels of a run, by its row."""
    found = tx.connection.scalars(select(labels.c.label).where(labels.c.run == run))
    return {name: value for name, _, value in (each.partition("=") for each in found)}


def containing(column: Column[str], text: str | None) -> list[Condition]:
    """Return the conditions of the rows whose column contains each word of a text."""
    # The longest word is the rarest.
    words = sorted(searchable(text).split(), key=len, reverse=True)
    return [column.contains(word, autoescape=True) for word in words]


def search_text(view: views.RunView) -> str:
    """Return the text that a search of runs looks in."""
    labelled = (f"{name}={value}" for name, value in view.labels.items())
    return searchable(
        view.run_id, view.graph, view.conversation_id, view.started_by, view.sent_by, *labelled
    )


def search_text_of_question(
    of: views.RunView, view: views.InterruptView, *, is_sealed: bool
) -> str:
    """Return the text that a search of questions looks in, without prompt and reason if sealed."""
    named = [*view.assignees, view.answered_by, view.requested_capability]
    clear = searchable(view.id, view.name, view.address, *named, search_text(of))
    if is_sealed:
        return clear
    return f"{clear}\n{searchable(view.prompt, *_texts(view.reason))}"


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case Mapping():
            for each in value.values():
                yield from _texts(each)
        case list():
            for each in value:
                yield from _texts(each)
        case bool() | None:
            pass
        case _:
            yield str(value)


def searchable(*texts: str | None) -> str:
    """Return texts as a search compares them: without regard to upper and lower case.

    A character that JSON allows in a text and databases do not becomes a question mark.
    """
    folded = "\n".join(text.casefold() for text in texts if text)
    return folded.replace("\0", "?").encode(errors="replace").decode()


def lock_deployment(tx: Transaction) -> None:
    """Let no other transaction change what the deployment shares, until this one ends."""
    # SQLite has one writer anyway. Rows that refer to this one may be written meanwhile.
    one = select(deployments.c.id).where(deployments.c.id == tx.deployment)
    tx.connection.execute(one.with_for_update(key_share=True))


def among(column: Column[str], patterns: Collection[str]) -> Condition:
    """Return the condition that a column has one of these names; `*` at the end makes a name a prefix."""
    names = [each for each in patterns if not each.endswith("*")]
    begun = [each.removesuffix("*") for each in patterns if each.endswith("*")]
    prefixed = [func.substr(column, 1, len(prefix)) == prefix for prefix in begun]
    return or_(column.in_(names), *prefixed)
