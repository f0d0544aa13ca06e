"""The report of approvals, read from the records."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from recorded import Recorded, asked, at, batch, fact, opened, question, run_view
from sqlalchemy import select
from sqlalchemy.dialects import postgresql

from abeyance.core.ledger import Vote
from abeyance.core.policy import Principal, ReadRights
from abeyance.errors import Code, Refusal
from abeyance.filters import ApprovalsFilter
from abeyance.records import approvals
from abeyance.records.batch import Batch
from abeyance.records.documents import Transaction
from abeyance.records.report import Approvals, Total, csv_head, csv_lines
from abeyance.records.tables import questions

DAY = {"since": at(-60), "until": at(1_000)}


def report(recorded: Recorded, **about: Any) -> Approvals:
    names = ("fields", "sums", "reader", "cursor", "limit")
    beside = {name: about.pop(name) for name in names if name in about}
    return recorded.read(approvals.page, ApprovalsFilter(**{**DAY, **about}), **beside)


def decided(run_id: str, minute: float = 1, answer: Any = True, **fields: Any) -> list[Batch]:
    """Return the batches of a run that asks at noon, and gets an answer so many minutes later."""
    run = fields.pop("run", {})
    shown = {name: fields.pop(name) for name in ("reason", "payload", "prompt") if name in fields}
    about = {"status": "answered", "answered_by": "ada", "settled_at": at(minute), **fields}
    capability: dict[str, Any] = {"requested_capability": fields.get("requested_capability")}
    view = run_view(run_id, **run)
    # A settled question keeps only the beginning of its prompt, and no other shown content.
    settled = question(run_id, "pay", answer=answer, graph=view.graph, **about)
    return [
        asked(run_id, run=run, **shown, **capability),
        batch(view.model_copy(update={"status": "completed"}), settled, number=2),
    ]


def granted(run_id: str, minute: float = 2, **data: Any) -> Batch:
    """Return the batch of a run in which an earlier approval by ada covers a call."""
    about = {"grant": "g1", "by": "ada", "tool": "refund", "call": "node:clerk", **data}
    audit = about.pop("audit", None)
    told = fact(
        *(1, "approval.granted"),
        time=at(minute),
        address=about["call"],
        actor=about["by"],
        data=about,
        audit=audit,
    )
    return batch(run_view(run_id), facts=[told])


def found(page: Approvals) -> str:
    return "".join(row.run_id for row in page.items)


def test_each_question_is_one_row_with_who_settled_it_and_what_they_were_shown(
    recorded: Recorded,
) -> None:
    votes = (
        Vote(by="bob", at=at(2), answer=True),
        Vote(by="ada", on_behalf_of="eve", at=at(3), answer=True),
    )
    long = "Refund 250 for order A-7, " + "please " * 40
    recorded.write(
        *decided(
            "a",
            3,
            {"approved": True, "amount": 90},
            prompt=long,
            reason={"amount": 250.1, "items": [{"id": "x"}]},
            digest="sha256:1",
            prompt_values=[(7, 10)],
            note="as agreed",
            on_behalf_of="eve",
            votes=votes,
            requested_capability="refunds:approve",
        )
    )

    page = report(recorded, fields=["reason.amount", "reason.items.0.id", "answer.amount"])

    (row,) = page.items
    assert (row.id, row.run_id, row.graph, row.name) == ("a.pay", "a", "refund", "pay")
    assert (row.outcome, row.by, row.on_behalf_of, row.at) == ("approved", "ada", "eve", at(3))
    assert (row.asked_at, row.voters, row.note) == (at(0), ["bob", "ada"], "as agreed")
    assert (row.prompt, row.digest) == (long, "sha256:1")
    assert row.prompt_values == [(7, 10)]
    assert row.answer == {"approved": True, "amount": 90}
    assert row.fields == {"reason.amount": 250.1, "reason.items.0.id": "x", "answer.amount": 90}
    assert (page.total, page.partial, page.unknown_fields) == (1, False, [])
    assert (page.since, page.until) == (DAY["since"], DAY["until"])


OUTCOMES: dict[str, tuple[dict[str, Any], str]] = {
    "a": ({"answer": True}, "approved"),
    "b": ({"answer": {"approved": True, "amount": 1}}, "approved"),
    "c": ({"answer": False}, "rejected"),
    "d": ({"answer": {"approved": False}}, "rejected"),
    "e": ({"answer": {"approved": 1}}, "answered"),
    "f": ({"answer": 1}, "answered"),
    "g": ({"answer": None}, "answered"),
    "h": ({"status": "expired", "answered_by": None}, "expired"),
    "i": ({"status": "cancelled", "answered_by": None}, "withdrawn"),
    "j": ({"status": "superseded", "answered_by": None}, "withdrawn"),
}


def test_the_outcome_says_what_a_question_came_to(recorded: Recorded) -> None:
    for run_id, (fields, _) in OUTCOMES.items():
        recorded.write(*decided(run_id, **fields))
    recorded.write(asked("open"))

    told = {row.run_id: row.outcome for row in report(recorded).items}
    assert told == {run_id: outcome for run_id, (_, outcome) in OUTCOMES.items()}
    for each in ("approved", "rejected", "answered", "expired", "withdrawn", "granted"):
        page = report(recorded, outcomes={each})
        assert {row.run_id for row in page.items} == {r for r, o in told.items() if o == each}
        assert page.total == len(page.items)


def test_the_report_keeps_content_and_answer_of_a_question_settled_in_its_batch(
    recorded: Recorded,
) -> None:
    answer = {"approved": True, "text": "long " * 200}
    data = {"id": "a.pay"}
    facts = [
        fact(1, "interrupt.opened", data=data, audit={"shown": {"prompt": "Pay 7?", "reason": 7}}),
        fact(2, "interrupt.changed", data=data, audit={"shown": {"prompt": "Pay 8?", "reason": 8}}),
        fact(3, "interrupt.voted", data=data, audit={"answer": False}),
        fact(4, "interrupt.answered", data=data, audit={"answer": answer}),
    ]
    settled = question("a", "pay", status="answered", settled_at=at(4), answered_by="ada")
    recorded.write(batch(run_view("a"), settled, facts=facts))

    (row,) = report(recorded, fields=["reason", "answer.text"]).items
    assert (row.outcome, row.prompt, row.answer) == ("approved", "Pay 8?", answer)
    assert row.fields == {"reason": 8, "answer.text": answer["text"]}


def test_a_long_answer_stays_though_its_run_hands_the_question_over_without_it(
    recorded: Recorded,
) -> None:
    long = {"approved": True, "text": "long " * 200}
    asking, answering = decided("a", answer=long)
    recorded.write(asking, answering)
    (settled,) = answering.questions
    recorded.write(batch(run_view("a"), settled.model_copy(update={"answer": None}), number=3))

    (row,) = report(recorded).items
    assert (row.outcome, row.answer) == ("approved", long)


def test_an_answer_after_which_its_question_was_asked_again_is_withdrawn_and_in_no_sum(
    recorded: Recorded,
) -> None:
    recorded.write(*decided("a", 1, reason={"amount": 5}), *decided("b", 2, reason={"amount": 7}))
    (settled,) = decided("a")[1].questions
    voided = settled.model_copy(update={"answer": None, "settled_reason": "asked again"})
    recorded.write(batch(run_view("a"), voided, number=3))

    page = report(recorded, sums=["reason.amount"])

    assert [(row.run_id, row.outcome, row.by, row.settled_reason) for row in page.items] == [
        ("b", "approved", "ada", None),
        ("a", "withdrawn", "ada", "asked again"),
    ]
    assert page.sums["reason.amount"].sum == "7"
    assert report(recorded, outcomes={"approved"}).total == 1


FILTERS: list[tuple[dict[str, Any], str]] = [
    ({}, "dcba"),
    ({"since": at(2)}, "dcb"),
    ({"until": at(3)}, "ba"),
    ({"since": at(2), "until": at(2)}, ""),
    ({"person": "ada"}, "dba"),
    ({"person": "Ada"}, ""),
    ({"person": "eve"}, "b"),
    ({"person": "bob"}, "cb"),
    ({"person": "bo_"}, ""),
    ({"capabilities": "pay"}, "a"),
    ({"capabilities": ("p*", "sign")}, "ba"),
    ({"graph": "order"}, "b"),
    ({"graph": "refund"}, "dca"),
    ({"outcomes": {"approved", "granted"}}, "da"),
    ({"outcomes": "rejected"}, "b"),
    ({"outcomes": {"rejected"}, "person": "bob", "graph": "order"}, "b"),
]


def test_the_report_is_filtered(recorded: Recorded) -> None:
    recorded.write(
        *decided("a", 1, requested_capability="pay"),
        *decided(
            "b",
            2,
            {"approved": False},
            on_behalf_of="eve",
            votes=(Vote(by="bob", at=at(1)),),
            requested_capability="sign",
            run={"graph": "order"},
        ),
        *decided("c", 3, "in cash", answered_by="bob"),
        granted("d", 4),
        asked("open"),
    )

    for filters, expected in FILTERS:
        page = report(recorded, **filters)
        assert (filters, found(page), page.total) == (filters, expected, len(expected))


def test_calls_under_a_grant_are_rows_among_the_others_and_pages_follow_each_other(
    recorded: Recorded,
) -> None:
    # At the same moment, questions come before calls.
    shown = {"reason": {"amount": 5}, "prompt": "Pay 5?", "prompt_values": [[4, 5]]}
    recorded.write(
        *decided("a", 1), granted("b", 1), *decided("c", 2), granted("d", 3), granted("e", 3)
    )
    recorded.write(granted("f", -61), granted("x", -5, audit={"shown": shown}))

    everything = report(recorded, fields=["reason.amount"], sums=["reason.amount"])
    assert found(everything) == "edcabx"
    assert everything.items[5].fields == {"reason.amount": 5}
    assert everything.items[5].prompt_values == [(4, 5)]
    assert everything.sums["reason.amount"].sum == "5"
    call = everything.items[0]
    assert (call.outcome, call.grant, call.by, call.name) == ("granted", "g1", "ada", "refund")
    assert (call.id, call.answer, call.at) == (None, None, at(3))
    for limit in (1, 2, 3, 4):
        read, cursor = "", None
        while True:
            page = report(recorded, limit=limit, cursor=cursor)
            read += found(page)
            assert page.total == 6
            if (cursor := page.next_cursor) is None:
                break
        assert read == "edcabx"


def test_a_report_up_to_now_keeps_its_time_from_page_to_page(recorded: Recorded) -> None:
    now = datetime.now(UTC)
    recorded.write(*decided("a", settled_at=now), *decided("b", settled_at=now))
    open_ended: dict[str, Any] = {"since": None, "until": None}
    first = report(recorded, limit=1, **open_ended)
    recorded.write(*decided("c", settled_at=datetime.now(UTC)))
    rest = report(recorded, cursor=first.next_cursor, **open_ended)

    assert (found(first), found(rest)) == ("b", "a")
    assert (first.since, first.until) == (rest.since, rest.until)
    assert (first.until - first.since).days == 30
    assert report(recorded, **open_ended).total == 3


def test_a_cursor_is_of_one_report_and_a_time_begins_before_it_ends(recorded: Recorded) -> None:
    recorded.write(*decided("a"), *decided("b"))
    cursor = report(recorded, limit=1).next_cursor
    for other in ({"graph": "refund"}, {"fields": ["reason"]}, {"cursor": "x"}):
        with pytest.raises(Refusal, match="not a cursor of this list") as refused:
            report(recorded, **{"cursor": cursor, **other})
        assert refused.value.code == Code.INVALID_BODY
    with pytest.raises(Refusal, match=r"2026-03-02T12:02:00\+00:00 is after 2026-03-02T12:01"):
        report(recorded, since=at(2), until=at(1))
    with pytest.raises(Refusal, match="where the time ends"):
        report(recorded, since=datetime(2150, 1, 1, tzinfo=UTC), until=None)
    first = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))
    assert report(recorded, since=first, until=first).total == 0
    assert report(recorded, since=None, until=datetime(1, 1, 2, tzinfo=UTC)).total == 0


def test_sums_are_exact_of_the_whole_report_and_on_its_first_page(recorded: Recorded) -> None:
    amounts = [0.1, 0.2, "480.10", 10**40, -1, True, "NaN", "1e9", None, {"x": 1}, [2]]
    for number, amount in enumerate(amounts):
        recorded.write(*decided(f"r{number}", reason={"amount": amount}))
    recorded.write(granted("g"), *decided("other", reason="late"))

    page = report(recorded, limit=1, sums=["reason.amount", "reason.nothing"])

    added = page.sums["reason.amount"]
    assert (added.sum, added.rows) == (f"{10**40 + 479}.40", 5)
    assert (page.sums["reason.nothing"].sum, page.sums["reason.nothing"].rows) == ("0", 0)
    # The field is known although its value is a text and not a number.
    assert page.unknown_fields == ["reason.nothing"]
    twice = report(recorded, limit=1, sums=["reason.amount", "reason.nothing", "reason.amount"])
    assert (twice.sums, twice.unknown_fields) == (page.sums, page.unknown_fields)
    both = report(recorded, limit=1, fields=["reason.amount"], sums=["reason.nothing"])
    assert both.unknown_fields == ["reason.amount", "reason.nothing"]
    assert report(recorded, cursor=page.next_cursor, limit=1, sums=["reason.amount"]).sums == {}
    rejected = report(recorded, outcomes={"rejected"}, sums=["reason.amount"])
    assert rejected.sums["reason.amount"].rows == 0
    # A report without rows cannot say which fields are unknown.
    assert rejected.unknown_fields == []


PATHS = [
    *("reason", "reason.a", "reason.b.a", "reason.é", "reason.a-b", "reason.a b", 'reason."'),
    *("reason.1", "reason.0.a", "reason.00.a", "reason.-1.a", "reason.b.0"),
    *("reason.4294967296.a", "prompt", "payload.a", "answer", "answer.a", "answer.b.0"),
]


def test_a_sum_has_the_number_at_its_path_and_nothing_else(recorded: Recorded) -> None:
    documents: list[Any] = [
        {"a": 0.1, "b": {"a": 2}, "é": 3, "a-b": 4, "a b": 5, '"': 6, "1": 7, "a.b": 8},
        {"a": -(10**40), "b": [9, 1], "note": '\ud800\x00 "a":5', "A": 10},
        [{"a": 11}, 12, {"a": 13}],
        *({"a": "0.10"}, {"a": "1e3"}, {"a": 1e300}, {"a": None}, {"a": True}, {"b": None}),
        *(14, "15", "sealed:16", None, True, 5e-324),
    ]
    for number, each in enumerate(documents):
        recorded.write(*decided(f"q{number}", answer=each, reason=each, payload=each))
        shown = {"reason": each, "payload": each, "prompt": "17"}
        recorded.write(granted(f"c{number}", audit={"shown": shown}))
    recorded.write(granted("bare"), granted("empty", audit={}))

    for path in PATHS:
        expected, rows = Total(), report(recorded, fields=[path], limit=100)
        for row in rows.items:
            expected.add(row.fields[path])
        added = report(recorded, sums=[path])

        assert added.sums == {path: expected.shown}
        assert added.unknown_fields == rows.unknown_fields, path


def test_postgresql_parses_a_document_once_for_all_sums_of_it() -> None:
    paths = [f"reason.amount{number}" for number in range(20)]
    query = approvals._grouped(select(questions), approvals._QUESTION, paths, "postgresql")
    text = str(query.compile(dialect=postgresql.dialect()))  # type: ignore[no-untyped-call]
    rows = text[text.index("FROM (") :]

    assert text.count("pg_input_is_valid(") == rows.count("pg_input_is_valid(") == 1
    assert "OFFSET" in rows


def test_a_sum_of_too_many_rows_is_refused_with_what_to_do(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(approvals, "MOST_ADDED", 1)
    recorded.write(*decided("a"), *decided("b"))

    with pytest.raises(Refusal, match="at most 1 rows, and these are 2: choose a shorter time"):
        report(recorded, sums=["reason"])
    assert report(recorded, sums=["reason"], limit=1, until=at(1.5), graph="none").total == 0


def test_discarded_decisions_stay_in_the_report_but_not_in_sums(recorded: Recorded) -> None:
    recorded.write(*decided("a", reason=1), *decided("b", reason=2))
    recorded.change(_discard, "a.pay")

    page = report(recorded, sums=["reason"])

    assert [(row.run_id, row.rewound_by) for row in page.items] == [("b", None), ("a", 7)]
    assert (page.sums["reason"].sum, page.total) == ("2", 2)


def _discard(tx: Transaction, interrupt_id: str) -> None:
    from abeyance.records.tables import questions

    own = questions.update().where(questions.c.interrupt_id == interrupt_id)
    tx.connection.execute(own.values(rewound_by=7))


def test_a_field_that_no_row_of_the_page_has_is_null_and_named(recorded: Recorded) -> None:
    recorded.write(*decided("a", reason={"amount": None, "items": [1]}), *decided("b"))

    fields = ["reason.amount", "reason.order", "reason.items.1", "payload"]
    page = report(recorded, fields=fields)

    assert page.unknown_fields == ["reason.order", "reason.items.1"]
    assert page.items[1].fields == dict.fromkeys(fields)
    assert report(recorded, fields=fields, graph="none").unknown_fields == []


def test_labels_hide_rows_and_the_report_says_that_it_is_partial(recorded: Recorded) -> None:
    recorded.write(
        *decided("a", reason=1, run={"labels": {"tenant": "acme"}}),
        *decided("b", reason=2, run={"labels": {"tenant": "bolt"}}),
        granted("c"),
    )
    acme, both = ({"tenant": ["acme"]}, {"tenant": ["acme", "bolt"]})

    def seen(rights: dict[str, list[str]], **about: Any) -> tuple[str, int, bool, str]:
        page = report(recorded, reads=ReadRights.of(rights), sums=["reason"], **about)
        return found(page), page.total, page.partial, page.sums["reason"].sum

    assert seen({}) == ("cba", 3, False, "3")
    assert seen(acme) == ("a", 1, True, "1")
    assert seen(both) == ("ba", 2, True, "3")
    assert seen(both, outcomes={"approved"}) == ("ba", 2, False, "3")
    assert seen({"tenant": ["none"]}) == ("", 0, True, "0")


def test_an_answer_is_for_who_could_have_given_it_or_administers(recorded: Recorded) -> None:
    recorded.write(*decided("a", answer={"approved": True, "n": 5}, requested_capability="pay"))
    recorded.write(*decided("b", answer={"approved": True, "n": 7}))

    def seen(*capabilities: str) -> tuple[list[Any], str, bool, list[str]]:
        reader = Principal(subject="rita", capabilities=("runs:read", *capabilities))
        page = report(recorded, reader=reader, fields=["answer.n"], sums=["answer.n"])
        shown = [row.answer and row.answer["n"] for row in page.items]
        assert [row.fields["answer.n"] for row in page.items] == shown
        assert [row.redacted for row in page.items] == [each is None for each in shown]
        assert {row.outcome for row in page.items} == {"approved"}
        return shown, page.sums["answer.n"].sum, page.partial, page.unknown_fields

    assert seen() == ([7, None], "7", True, [])
    assert seen("pay") == seen("admin") == ([7, 5], "12", False, [])


def test_a_row_that_no_key_opens_has_no_documents(database_url: str) -> None:
    with opened(database_url, "one") as sealed, opened(database_url) as keyless:
        sealed.write(*decided("a", reason=3, requested_capability="pay"), granted("b"))
        whole = report(sealed, sums=["reason"], fields=["reason"])
        page = report(keyless, sums=["reason"], fields=["reason"], person="ada")
        keyless.write(*decided("open", reason=4))
        both, part = (report(each, sums=["reason", "answer"]) for each in (sealed, keyless))

    assert (whole.sums["reason"].sum, whole.partial, whole.items[1].by) == ("3", False, "ada")
    assert (page.sums["reason"].rows, page.partial, page.unknown_fields) == (0, True, [])
    call, row = page.items
    assert (row.id, row.outcome, row.degraded, row.by) == ("a.pay", "approved", True, None)
    assert (call.outcome, call.degraded, call.grant) == ("granted", True, None)
    assert (both.sums["reason"].sum, both.partial) == ("7", False)
    assert (part.sums["reason"].sum, part.sums["reason"].rows, part.partial) == ("4", 1, True)


def test_csv_cells_are_not_formulas_and_numbers_stay_numbers(recorded: Recorded) -> None:
    odd = ["=1+1", "+1 2", "-x", "@a", "\tx", "-5", "+480.10", -2.5, 'say "x",\r\ny', True, None]
    for number, value in enumerate(odd):
        recorded.write(*decided(f"r{number:02}", reason=value))
    recorded.write(granted("z", 3, tool="=cmd()"))
    page = report(recorded, fields=["reason"])

    rows = [row.model_dump(mode="json") for row in page.items]
    text = csv_head(["reason"]) + csv_lines(rows, ["reason"])

    head, call, *lines = csv.reader(io.StringIO(text, newline=""))
    assert head[:3] == ["at", "outcome", "by"]
    assert call[head.index("name")] == "'=cmd()"
    cells = [line[head.index("reason")] for line in lines][::-1]
    assert cells == [
        *("'=1+1", "'+1 2", "'-x", "'@a", "'\tx", "-5", "+480.10", "-2.5", 'say "x",\r\ny'),
        *("true", ""),
    ]
    assert text.count("\r\n") == len(odd) + 3
