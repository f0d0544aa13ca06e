"""Reads the report of approvals: the questions that were settled, and the calls that ran under a grant.

Settled questions are rows of `questions`, calls under a grant are events: both are read newest first, and
merged. A decision that a rewind has discarded is a row too, because somebody made it, and so is an answer
whose question was asked again. Sums leave both out, because the decision comes again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain, zip_longest
from typing import Any, Final, TypeAlias

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Select,
    Text,
    case,
    cast,
    exists,
    func,
    literal,
    or_,
    select,
    tuple_,
)
from sqlalchemy.dialects.postgresql import JSONB

from abeyance.core.delegations import ADMIN
from abeyance.core.json import Json
from abeyance.core.policy import Principal
from abeyance.filters import ApprovalsFilter
from abeyance.keyring import WrongKey
from abeyance.records import cursors, report, selecting
from abeyance.records.documents import Transaction
from abeyance.records.question_rows import STANDS
from abeyance.records.report import MISSING, Approval, Approvals, Sum, Total
from abeyance.records.selecting import AnyRow, Condition
from abeyance.records.tables import GRANTED, events, micros, moment, questions, runs
from abeyance.util import invalid, require_in_order

Place: TypeAlias = tuple[int, int, int]
"""The position of a row: its time, its kind, and its key."""

MOST_ADDED: Final = 150_000
"""In rows, each of which a sum has to read. A million events have as many."""
_USUAL: Final = timedelta(days=30)
_FIRST: Final = datetime.min.replace(tzinfo=UTC)
_CHUNK: Final = 5_000
_FAR: Final = 2**56
"""In microseconds: no moment is as far away, and no key as large."""
_ANSWER: Final = "answer"
_GRANTED: Final = "granted"
_NAMES: Final = re.compile(r"[^\W\d][\w-]*(\.[^\W\d][\w-]*)*")
"""A path of plain names, which means the same to SQLite."""
_PICKS_SINCE: Final = {"sqlite": (3, 38), "postgresql": (16,)}
"""The versions since which a database returns a part of a document with all digits of its numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """A kind of rows: their columns, and those that find and sort them."""

    rank: int
    at: Column[Any]
    key: Column[Any]
    run: Column[Any]
    capability: Column[Any]
    rewound_by: Column[Any]
    columns: Sequence[Column[Any]]
    # The columns that fields are picked from.
    documents: Sequence[Column[Any]]
    # The condition of the rows that sums add up.
    standing: Condition


_QUESTION: Final = _Kind(
    rank=1,
    at=questions.c.settled_at,
    key=questions.c.id,
    run=questions.c.run,
    capability=questions.c.capability,
    rewound_by=questions.c.rewound_by,
    columns=(
        *(questions.c.view, questions.c.shown, questions.c.outcome, questions.c.interrupt_id),
        questions.c.created_at,
    ),
    documents=(questions.c.shown, questions.c.view),
    standing=STANDS & or_(questions.c.outcome != "withdrawn", questions.c.status != "answered"),
)
_VIEW: Final = questions.c.view
_CALL: Final = _Kind(
    rank=0,
    at=events.c.at,
    key=events.c.position,
    run=events.c.run,
    capability=events.c.capability,
    rewound_by=events.c.rewound_by,
    columns=(events.c.data, events.c.audit, events.c.actor),
    documents=(events.c.audit,),
    standing=events.c.rewound_by.is_(None),
)


def page(
    tx: Transaction,
    filters: ApprovalsFilter,
    *,
    fields: Sequence[str] = (),
    sums: Sequence[str] = (),
    reader: Principal | None = None,
    cursor: str | None = None,
    limit: int = 50,
) -> Approvals:
    """Return a page of the report, newest first, with these fields of each row and, on the first page,
    the sums of others. A `reader` reads the answers that their capabilities allow; None reads all.

    Raises `invalid_body` for a cursor of another report, a time that ends before it begins, and a sum of
    too many rows.
    """
    criteria = cursors.criteria(filters, fields=[*fields])
    after: Place | None = None
    if cursor is None:
        until = datetime.now(UTC) if filters.until is None else filters.until
        since = filters.since or until - min(_USUAL, until - _FIRST)
        require_in_order(since, until)
        # In some zones there are moments before the first of UTC.
        first = micros(_FIRST)
        span = (max(first, micros(since)), max(first, micros(until)))
    else:
        after, span = _place(criteria, cursor)
    found = _Found(tx, filters, span=span, reader=reader)
    total, is_partial = found.counted()
    added: dict[str, Sum] = {}
    nowhere: set[str] = set()
    if sums and after is None:
        added, nowhere, is_whole = found.added(sums, total)
        is_partial = is_partial or not is_whole
    rows = found.rows(after, limit + 1)
    next_cursor = None
    if len(rows) > limit:
        next_cursor = cursors.write(criteria, {"after": [*rows[limit - 1][0]], "span": [*span]})
    items, unknown = list[Approval](), {*fields} if rows else set[str]()
    for place, row in rows[:limit]:
        item, said = found.opened(place, row)
        values = {path: report.found_at(said, path) for path in fields}
        unknown -= {path for path, it in values.items() if it is not MISSING or item.degraded}
        if item.redacted:
            unknown -= {path for path in fields if _is_of_answer(path)}
        picked = {path: None if it is MISSING else it for path, it in values.items()}
        items.append(item.model_copy(update={"fields": picked}))
    return Approvals(
        items=items,
        next_cursor=next_cursor,
        total=total,
        **{"from": moment(span[0]), "to": moment(span[1])},
        partial=is_partial or any(item.redacted or item.degraded for item in items),
        sums=added,
        unknown_fields=[
            path for path in dict.fromkeys((*fields, *sums)) if path in unknown | nowhere
        ],
    )


class _Found:
    """The rows that a filter selects in a span of time."""

    def __init__(
        self,
        tx: Transaction,
        filters: ApprovalsFilter,
        *,
        span: tuple[int, int],
        reader: Principal | None,
    ) -> None:
        self._tx = tx
        self._reads_all = reader is None or reader.may(ADMIN)
        self._reader = reader
        self._filters = filters
        self._kinds: dict[int, tuple[_Kind, list[Condition]]] = {}
        wanted = filters.outcomes
        if not wanted or wanted - {_GRANTED}:
            own = [*_conditions(_QUESTION, tx.deployment, filters, span)]
            if wanted:
                own.append(questions.c.outcome.in_(sorted(wanted)))
            if filters.person is not None:
                name = report.lines([filters.person])
                # Unlike LIKE, it tells upper from lower case in every database.
                own.append(func.replace(questions.c.deciders, name, "") != questions.c.deciders)
            self._kinds[_QUESTION.rank] = (_QUESTION, own)
        if not wanted or _GRANTED in wanted:
            own = [events.c.type == GRANTED, *_conditions(_CALL, tx.deployment, filters, span)]
            if filters.person is not None:
                own.append(events.c.actor == filters.person)
            self._kinds[_CALL.rank] = (_CALL, own)

    def counted(self) -> tuple[int, bool]:
        """Return the number of rows that the reader may see, and whether others are hidden."""
        seen, others = 0, False
        for kind, own in self._kinds.values():
            readable = [*selecting.readable(kind.run, self._filters.reads)]
            count = select(func.count()).select_from(kind.key.table).where(*own)
            seen += self._tx.connection.scalars(count.where(*readable)).one()
            for each in readable:
                hidden = select(kind.key).where(*own, ~each).limit(1)
                others = others or self._tx.connection.scalar(hidden) is not None
        return seen, others

    def added(self, paths: Sequence[str], rows: int) -> tuple[dict[str, Sum], set[str], bool]:
        """Return the sums of fields over so many `rows`, the fields that no added row has, and whether
        all rows could be read. An unreadable row may have any field.
        """
        if rows > MOST_ADDED:
            message = (
                f"a sum reads at most {MOST_ADDED} rows, and these are {rows}: choose a shorter time, "
                "or more filters"
            )
            raise invalid([{"pointer": "/sum", "message": message, "in": "query"}])
        totals = {path: Total() for path in paths}
        paths = [*totals]
        with_answers = any(map(_is_of_answer, paths))
        can_pick = _can_pick(self._tx, paths)
        is_whole = True
        count, nowhere = 0, {*paths}
        for kind, own in self._kinds.values():
            query = self._select(kind, own, with_answers=with_answers).where(kind.standing)
            if can_pick:
                query = _grouped(query, kind, paths, self._tx.connection.dialect.name)
            else:
                documents = [each for each in kind.documents if with_answers or each is not _VIEW]
                capability = kind.capability.label("capability")
                query = query.with_only_columns(literal(1).label("times"), capability, *documents)
            chunks = self._tx.connection.execute(query.execution_options(yield_per=_CHUNK))
            for row in chain.from_iterable(chunks.partitions()):
                count += row.times
                try:
                    said = self._document(kind, row, with_answers=with_answers)
                except WrongKey:
                    is_whole = False
                    nowhere = set()
                    continue
                # A call under a grant has no answer.
                is_readable = not with_answers or kind is _CALL or self._may_read(row)
                is_whole = is_whole and is_readable
                if not is_readable:
                    nowhere -= {path for path in paths if _is_of_answer(path)}
                picked = row[-len(paths) :] if can_pick else ()
                for (path, total), text in zip_longest(totals.items(), picked):
                    if text is None:
                        value = report.found_at(said, path)
                    elif is_readable or not _is_of_answer(path):
                        value = self._tx.documents.read(text)
                    else:
                        value = MISSING
                    total.add(value, row.times)
                    if value is not MISSING:
                        nowhere.discard(path)
        if not count:
            nowhere = set()
        return {path: total.shown for path, total in totals.items()}, nowhere, is_whole

    def rows(self, after: Place | None, limit: int) -> list[tuple[Place, AnyRow]]:
        """Return the rows after a place, newest first."""
        found: list[tuple[Place, AnyRow]] = []
        for kind, own in self._kinds.values():
            query = self._select(kind, own, with_answers=True)
            query = query.add_columns(runs.c.run_id, runs.c.graph)
            query = query.join(runs, kind.run == runs.c.id)
            if after is not None:
                query = query.where(_after(kind, after))
            query = query.order_by(kind.at.desc(), kind.key.desc()).limit(limit)
            rows = self._tx.connection.execute(query)
            found += [((row.at, kind.rank, row.key), row) for row in rows]
        return sorted(found, key=lambda each: each[0], reverse=True)[:limit]

    def _select(self, kind: _Kind, own: Sequence[Condition], *, with_answers: bool) -> Select[Any]:
        columns = [each for each in kind.columns if with_answers or each is not questions.c.view]
        return select(
            *(kind.at.label("at"), kind.key.label("key"), kind.capability.label("capability")),
            *(kind.rewound_by.label("rewound_by"), *columns),
        ).where(*own, *selecting.readable(kind.run, self._filters.reads))

    def _may_read(self, row: AnyRow) -> bool:
        return self._reads_all or (self._reader is not None and self._reader.may(row.capability))

    def _document(self, kind: _Kind, row: AnyRow, *, with_answers: bool) -> Mapping[str, Json]:
        """Return the document that fields are picked from. Raises WrongKey."""
        if kind is _CALL:
            told: Mapping[str, Json] = self._read(row.audit)
            return told.get("shown") or {}
        shown: dict[str, Json] = self._read(row.shown)
        if with_answers and self._may_read(row):
            shown[_ANSWER] = self._read(row.view).get(_ANSWER)
        return shown

    def _read(self, document: str | None) -> Any:
        return {} if document is None else self._tx.documents.read(document)

    def opened(self, place: Place, row: AnyRow) -> tuple[Approval, Mapping[str, Json]]:
        """Return a row as the reader may see it, and the document that its fields are picked from."""
        kind = self._kinds[place[1]][0]
        about: dict[str, Any] = {
            "at": moment(row.at),
            "outcome": _GRANTED if kind is _CALL else row.outcome,
            "requested_capability": row.capability,
            "graph": row.graph,
            "run_id": row.run_id,
            "rewound_by": row.rewound_by or None,
        }
        if kind is _QUESTION:
            about |= {"id": row.interrupt_id, "asked_at": moment(row.created_at)}
        else:
            about["by"] = row.actor
        try:
            said = self._document(kind, row, with_answers=True)
            told = self._tx.documents.read(row.data if kind is _CALL else row.view)
        except WrongKey:
            return Approval(**about, degraded=True), {}
        if kind is _CALL:
            about |= {"name": told.get("tool", ""), "grant": told.get("grant")}
        else:
            names = ("name", "on_behalf_of", "digest", "note")
            about |= {name: told[name] for name in names if name in told}
            about |= {"by": told.get("answered_by"), "settled_reason": told.get("settled_reason")}
            about["voters"] = [vote["by"] for vote in told.get("votes", ())]
            about["redacted"] = not self._may_read(row) and _ANSWER in told
        about["answer"] = said.get(_ANSWER)
        about["prompt"] = said.get("prompt") or told.get("prompt", "")
        spans = (said if kind is _CALL else told).get("prompt_values")
        about["prompt_values"] = spans or []
        return Approval(**about), said


def _conditions(
    kind: _Kind, deployment: int, filters: ApprovalsFilter, span: tuple[int, int]
) -> Iterator[Condition]:
    yield kind.key.table.c.deployment == deployment
    yield kind.at >= span[0]
    yield kind.at < span[1]
    if filters.capabilities:
        yield selecting.among(kind.capability, filters.capabilities)
    if filters.graph is not None:
        of_graph = runs.c.graph == filters.graph
        own = exists().where(runs.c.id == kind.run, of_graph).correlate(events)
        yield questions.c.graph == filters.graph if kind is _QUESTION else own


def _after(kind: _Kind, place: Place) -> Condition:
    at, rank, key = place
    if kind.rank == rank:
        return tuple_(kind.at, kind.key) < tuple_(literal(at, BigInteger), literal(key, BigInteger))
    # In the same moment, kinds of a higher rank came before.
    return kind.at <= at if kind.rank < rank else kind.at < at


def _can_pick(tx: Transaction, paths: Sequence[str]) -> bool:
    """Return whether the database can look up paths, which takes it a fraction of the time."""
    dialect: Any = tx.connection.dialect
    is_sqlite = dialect.name == "sqlite"
    version = dialect.dbapi.sqlite_version_info if is_sqlite else dialect.server_version_info
    return version >= _PICKS_SINCE[dialect.name] and all(map(_NAMES.fullmatch, paths))


def _grouped(query: Select[Any], kind: _Kind, paths: Sequence[str], dialect: str) -> Select[Any]:
    """Return the query of the texts at paths, in which rows with the same ones come as one, and of the
    documents that the database cannot read.
    """
    found = {path: _document(kind, path) for path in paths}
    documents = [*dict.fromkeys((*kind.documents[:1], *found.values()))]
    parsed = (_parsed(each, dialect).label(f"{each.name}_parsed") for each in documents)
    capability = kind.capability.label("capability")
    inner = query.with_only_columns(capability, *documents, *parsed)
    # PostgreSQL would see through a subquery without this, and parse a document again for each path.
    rows = (inner if dialect == "sqlite" else inner.offset(0)).subquery()
    columns = [
        rows.c.capability,
        *(
            case((rows.c[f"{each.name}_parsed"].is_(None), rows.c[each.name])).label(each.name)
            for each in documents
        ),
        *(
            _picked(rows.c[f"{each.name}_parsed"], kind, path, dialect)
            for path, each in found.items()
        ),
    ]
    return select(func.count().label("times"), *columns).group_by(*columns)


def _document(kind: _Kind, path: str) -> Column[Any]:
    return _VIEW if kind is _QUESTION and _is_of_answer(path) else kind.documents[0]


def _parsed(document: Column[Any], dialect: str) -> ColumnElement[Any]:
    """Return a document for the database to read; null with a seal, or half of a character, in it."""
    if dialect == "sqlite":
        return case((func.json_valid(document) == 1, document))
    is_plain = func.pg_input_is_valid(document, "jsonb") & (func.strpos(document, "\\u") == 0)
    return case((is_plain, cast(document, JSONB)))


def _picked(parsed: ColumnElement[Any], kind: _Kind, path: str, dialect: str) -> ColumnElement[Any]:
    """Return the text at a path of a document that the database has parsed."""
    names = [*(("shown",) if kind is _CALL else ()), *path.split(".")]
    if dialect == "sqlite":
        return parsed.op("->")("$" + "".join(f'."{name}"' for name in names))
    return cast(func.jsonb_extract_path(parsed, *names), Text)


def _is_of_answer(path: str) -> bool:
    return path.partition(".")[0] == _ANSWER


def _place(criteria: Mapping[str, Json], cursor: str) -> tuple[Place, tuple[int, int]]:
    match cursors.read(criteria, cursor):
        case {"after": [int(at), int(rank), int(key)], "span": [int(since), int(until)]} if all(
            type(each) is int and micros(_FIRST) <= each < _FAR
            for each in (at, rank, key, since, until)
        ):
            return (at, rank, key), (since, until)
        case _:
            raise cursors.unusable(cursor)
