"""The inbox and the questions of a run, read from the records."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, get_args

import pytest
from recorded import Recorded, asked, at, batch, opened, question, run_view

from abeyance import views
from abeyance.core.ledger import Claim
from abeyance.core.policy import Principal, ReadRights
from abeyance.core.terms import Quorum
from abeyance.errors import Code, Refusal
from abeyance.filters import InboxFilter, Order, RunFilter
from abeyance.records import cursors, questions, runs

ORDERS = get_args(Order)
SOON = datetime.now(UTC) + timedelta(days=1)
LONG_AGO = datetime.now(UTC) - timedelta(days=1)


def inbox(recorded: Recorded, **about: Any) -> cursors.Page[views.InterruptView]:
    beside = {name: about.pop(name) for name in ("order", "cursor", "limit") if name in about}
    return recorded.read(questions.inbox, InboxFilter(**about), **beside)


def ids(found: list[views.InterruptView]) -> list[str]:
    return [view.id for view in found]


def whole(recorded: Recorded, limit: int, **about: Any) -> list[str]:
    """Return the list, read page by page."""
    found: list[str] = []
    cursor = None
    while True:
        page = inbox(recorded, cursor=cursor, limit=limit, **about)
        found += ids(page.items)
        if (cursor := page.next_cursor) is None:
            return found


# The names are in their order by deadline, ties included.
URGENCY = [
    asked("a", deadline=at(10), minute=3, priority="low", risk=9),
    asked("b", deadline=at(20), minute=2, priority="high"),
    asked("c", deadline=at(20), minute=2, priority="high", risk=5),
    asked("d", minute=1, priority="high", risk=5),
    asked("e", minute=4),
]


def test_the_inbox_is_sorted_and_a_minus_turns_it_around(recorded: Recorded) -> None:
    recorded.write(*URGENCY)

    sorted_by = {"deadline": "abcde", "age": "dbcae", "priority": "bcdea", "risk": "acdbe"}
    for order, expected in sorted_by.items():
        found = ids(inbox(recorded, order=order).items)
        assert (order, found) == (order, [f"{name}.pay" for name in expected])
        assert (order, ids(inbox(recorded, order=f"-{order}").items)) == (order, found[::-1])


@pytest.mark.parametrize("order", ORDERS)
def test_pages_follow_each_other_while_others_answer_and_ask(
    recorded: Recorded, order: Order
) -> None:
    recorded.write(*URGENCY)
    everything = whole(recorded, 2, order=order)
    first = inbox(recorded, order=order, limit=2)
    answered = first.items[0].run_id
    settled = question(answered, "pay", status="answered", settled_at=at(30))

    recorded.write(batch(run_view(answered, status="completed"), settled, number=2))
    rest = inbox(recorded, order=order, cursor=first.next_cursor, limit=9)

    assert sorted(everything) == [f"{name}.pay" for name in "abcde"]
    assert ids(first.items) + ids(rest.items) == everything
    assert (first.total, rest.total, rest.next_cursor) == (5, 4, None)


def test_a_long_list_is_counted_and_read_to_its_end(recorded: Recorded) -> None:
    many = [question("a", f"{number:04}", risk=number % 3) for number in range(1_100)]
    recorded.write(batch(run_view("a"), *many), asked("b"))

    assert inbox(recorded).total == 1_101
    assert inbox(recorded, min_risk=1).total == 733
    risky = [view.id for view in many if view.risk == 2]
    found = whole(recorded, 400, order="risk", q="a")
    assert (len(found), found[: len(risky)]) == (1_101, risky)


def test_a_cursor_is_of_one_list(recorded: Recorded) -> None:
    recorded.write(*URGENCY)
    cursor = inbox(recorded, limit=1, q="pay").next_cursor
    assert cursor is not None

    others: list[dict[str, Any]] = [
        {"q": "pay", "order": "age"},
        {"q": "pay", "order": "-deadline"},
        {"q": "a"},
        {"q": "pay", "started_by": "ada"},
        {"q": "pay", "status": "held"},
        {"q": "pay", "reads": ReadRights.of({"tenant": ["x"]})},
        {"q": "pay", "mine": Principal(subject="ada")},
    ]
    for other in others:
        with pytest.raises(Refusal, match="not a cursor of this list") as refused:
            inbox(recorded, cursor=cursor, **other)
        assert refused.value.code == Code.INVALID_BODY
    for broken in ("", "x", cursor[1:], cursor.replace(".", "")):
        with pytest.raises(Refusal, match="not a cursor of this list"):
            inbox(recorded, cursor=broken, q="pay")


def test_a_place_that_is_none_of_the_list_is_refused(recorded: Recorded) -> None:
    criteria = cursors.criteria(InboxFilter(), order="deadline", mine=None)
    far = 2**63
    places: list[Any] = [None, [], [1], ["a", "b"], [1, 2], [True, "a"], [far, "a"], [1, "\0"]]

    for place in places:
        forged = cursors.write(criteria, {"after": place})
        with pytest.raises(Refusal, match="not a cursor of this list"):
            inbox(recorded, cursor=forged)


FILTERS: list[tuple[dict[str, Any], str]] = [
    ({}, "abc"),
    ({"status": "held"}, "h"),
    ({"capabilities": {"pay"}}, "a"),
    ({"capabilities": {"pay", "sign"}}, "ab"),
    ({"capabilities": {"pa*"}}, "a"),
    ({"capabilities": {"p*", "sign"}}, "ab"),
    ({"capabilities": {"*"}}, "ab"),
    ({"capabilities": {"p_y*"}}, ""),
    ({"graph": "order"}, "b"),
    ({"graph": "Order"}, ""),
    ({"conversation_id": "talk"}, "c"),
    ({"started_by": "ada"}, "a"),
    ({"started_by": "ad_"}, ""),
    ({"started_by": "ada", "graph": "order"}, ""),
    ({"before": at(11)}, "a"),
    ({"before": at(10)}, ""),
    ({"assignee": "group:finance"}, "b"),
    ({"priority": "high"}, "c"),
    ({"priority": "normal"}, "ab"),
    ({"min_risk": 7}, "b"),
    ({"min_risk": 8}, ""),
    ({"min_risk": 10**30}, ""),
    ({"min_risk": 0}, "abc"),
    ({"ids": {"a.pay", "c.pay", "c.other", "d.pay", "pay"}}, "ac"),
    ({"ids": {"c.pay"}, "graph": "none"}, ""),
]


def test_the_inbox_is_filtered(recorded: Recorded) -> None:
    recorded.write(
        asked("a", deadline=at(10), requested_capability="pay", run={"started_by": "ada"}),
        asked(
            "b",
            requested_capability="sign",
            assignees=["bob", "group:finance"],
            risk=7,
            run={"graph": "order"},
        ),
        asked("c", priority="high", run={"conversation_id": "talk"}),
        asked("h", status="held", held_until=at(60)),
        asked("x", status="answered", settled_at=at(1), requested_capability="pay"),
    )

    for filters, expected in FILTERS:
        page = inbox(recorded, **filters)
        found = "".join(view.run_id for view in page.items)
        assert (filters, found, page.total) == (filters, expected, len(expected))


def test_mine_are_those_for_me_or_my_groups_and_those_that_i_have_claimed(
    recorded: Recorded,
) -> None:
    def escalated(moment: datetime) -> list[views.EscalationView]:
        return [views.EscalationView(at=moment, to=["ada"])]

    def claimed(by: str, until: datetime) -> Claim:
        return Claim(by=by, at=LONG_AGO, until=until)

    recorded.write(
        asked("assigned", assignees=["ada", "bob"]),
        asked("claimed", claim=claimed("ada", SOON)),
        asked("escalated", escalations=escalated(LONG_AGO)),
        asked("grouped", assignees=["group:finance"]),
        asked("voted", quorum=Quorum(count=2, of=("ada", "bob"))),
        asked("xclaimed-before", claim=claimed("ada", LONG_AGO)),
        asked("xescalated-later", escalations=escalated(SOON)),
        asked("xnobody"),
        asked("xothers", assignees=["bob", "group:ada", "finance"]),
        asked("xothers-claim", claim=claimed("group:finance", SOON)),
    )

    ada = Principal(subject="ada", groups=("finance",))
    found = [view.run_id for view in inbox(recorded, mine=ada).items]
    assert found == ["assigned", "claimed", "escalated", "grouped", "voted"]


SEARCHES = [
    ("refund", "ab"),
    ("REFUND", "ab"),
    ("order  A-17", "a"),
    ("a-17 order", "a"),
    ("refund missing", ""),
    ("4711", "b"),
    ("strasse", "b"),
    ("ada", "a"),
    ("tenant=acme", "b"),
    ("acme", "b"),
    ("b.pay", "b"),
    ("finance", "a"),
    ("refunds:approve", "b"),
    ("50%", "a"),
    ("5%", ""),
    ("%", "a"),
    ("_", "b"),
    ("snake_case", "b"),
    ("snakeXcase", ""),
    ("\\", "b"),
    ("/", "a"),
    ("'", "b"),
    ("true", ""),
    ("  ", "ab"),
    ("", "ab"),
    ("\0", "ab"),
    ("\ud800", "ab"),
]


def test_a_question_for_a_name_that_nobody_can_have_is_recorded(recorded: Recorded) -> None:
    # A shorter or more regular text would fit into an index.
    names = [Random(0).randbytes(10_000).hex(), "ada"]
    recorded.write(asked("a", assignees=names, quorum=Quorum(count=1, of=tuple(names))))

    (found,) = inbox(recorded, assignee="ada").items
    assert found.assignees == names


def test_every_word_of_a_search_occurs_somewhere_as_text(recorded: Recorded) -> None:
    recorded.write(
        asked(
            "a",
            prompt="Refund 50% of order A-17?",
            reason={"why": ["late", {"link": "a/b"}], "half": "\ud800"},
            assignees=["group:finance"],
            run={"started_by": "Ada"},
        ),
        asked(
            "b",
            prompt="Refund the Straße?",
            reason={"customer": 4711, "why": "snake_case\\ it's\0", "urgent": True},
            requested_capability="refunds:approve",
            run={"labels": {"tenant": "acme"}},
        ),
    )
    for q, expected in SEARCHES:
        page = inbox(recorded, q=q)
        found = "".join(view.run_id for view in page.items)
        assert (q, found, page.total) == (q, expected, len(expected))
    assert inbox(recorded, q="50%").items[0].prompt == "Refund 50% of order A-17?"
    assert inbox(recorded, q="a-").items == inbox(recorded, q="order a-").items


def test_a_search_with_keys_covers_only_clear_columns(database_url: str) -> None:
    with opened(database_url, "one") as sealed:
        sealed.write(asked("a", prompt="Refund 4711?", reason="late", run={"started_by": "ada"}))

        assert ids(inbox(sealed, q="ada").items) == ["a.pay"]
        assert inbox(sealed, q="4711").total == inbox(sealed, q="late").total == 0
        assert inbox(sealed).items[0].prompt == "Refund 4711?"


def test_a_reader_without_the_key_sees_a_question_without_its_content(database_url: str) -> None:
    with opened(database_url, "one") as sealed, opened(database_url) as keyless:
        sealed.write(asked("a", prompt="Refund 4711?", requested_capability="pay"))

        (question,) = inbox(keyless).items
        (run,) = keyless.read(runs.page, RunFilter()).items

    assert (question.id, question.run_id, question.kind) == ("a.pay", "a", views.UNREADABLE)
    assert (question.requested_capability, question.degraded) == ("pay", True)
    assert "'one'" in question.prompt
    assert (run.run_id, run.status, run.degraded) == ("a", "awaiting-input", True)
    assert [why.code for why in run.blocked] == ["key_missing"]


def test_a_reader_bound_to_labels_sees_the_questions_of_matching_runs(
    recorded: Recorded,
) -> None:
    recorded.write(
        asked("a", run={"labels": {"tenant": "acme", "region": "eu"}}),
        asked("b", run={"labels": {"tenant": "bolt", "region": "us"}}),
        asked("c", run={"labels": {"region": "eu"}}),
    )

    def seen(**rights: list[str]) -> str:
        found = inbox(recorded, reads=ReadRights.of(rights))
        assert found.total == len(found.items)
        return "".join(view.run_id for view in found.items)

    assert seen(tenant=["acme"]) == "a"
    assert seen(tenant=["acme", "bolt"]) == "ab"
    assert seen(tenant=["acme", "bolt"], region=["us"]) == "b"
    assert seen(tenant=["a_me"]) == seen(tenant=[]) == ""


def test_a_question_waits_until_it_is_settled_or_its_run_has_ended(recorded: Recorded) -> None:
    recorded.write(asked("a"), asked("b"), asked("c"))
    recorded.write(batch(run_view("a"), question("a", "pay", status="held"), number=2))
    # This run was ended in Temporal's own UI, for example.
    recorded.write(batch(run_view("b", status="halted"), number=2))

    assert ids(inbox(recorded).items) == ["c.pay"]
    assert ids(inbox(recorded, status="held").items) == ["a.pay"]
    assert recorded.read(questions.of_run, "b", status="all") == []
    assert recorded.read(questions.question, "b", "b.pay") is None


@pytest.mark.parametrize("late", [1, 2])
def test_only_the_newest_run_of_an_id_asks(recorded: Recorded, late: int) -> None:
    older = batch(run_view("a"), question("a", "old"), origin="first", number=late)
    newer = batch(run_view("a", minute=5), question("a", "new", minute=5), origin="second")

    recorded.write(batch(run_view("a"), question("a", "old"), origin="first"), newer, older)

    assert ids(inbox(recorded).items) == ["a.new"]
    assert ids(recorded.read(questions.of_run, "a", status="all")) == ["a.new"]
    assert recorded.read(questions.question, "a", "a.old") is None


def test_a_run_that_comes_late_is_not_the_newest_of_its_id(recorded: Recorded) -> None:
    recorded.write(batch(run_view("a", minute=5), question("a", "new"), origin="second"))
    recorded.write(batch(run_view("a"), question("a", "old"), origin="first"))

    assert ids(inbox(recorded).items) == ["a.new"]


def test_a_list_has_questions_without_what_is_large_and_one_is_read_whole(
    recorded: Recorded,
) -> None:
    view = question(
        "a",
        "pay",
        reason={"why": "late"},
        payload={"amount": 250},
        response_schema={"type": "boolean"},
        requested_capability="refunds:approve",
        deadline=at(10),
        preview="pays 250",
    )
    recorded.write(batch(run_view("a"), view))

    (listed,) = inbox(recorded).items
    assert (listed.reason, listed.payload, listed.response_schema) == (None, None, None)
    assert (listed.abridged, listed.preview) == (True, "pays 250")
    assert listed.requested_capability == "refunds:approve"
    assert recorded.read(questions.question, "a", "a.pay") == view
    assert recorded.read(questions.of_run, "a") == [view]
    for unknown in ("a.none", "a.pay\0", "\ud800"):
        assert recorded.read(questions.question, "a", unknown) is None


ABOUT: dict[str, tuple[object, object]] = {
    "a": ({"tool": "refund", "arguments": {"to": "ada", "amount": 2**60}}, {"amount": 2**60}),
    "b": ({"tool": "mail", "arguments": {"urgent": True, "to": "ada"}, "cost": 1}, {"to": "ada"}),
    "c": ({"payee": "Elm Ltd", "total_eur": "12900.00"}, {"total_eur": "12900.00"}),
    "d": ({"costly": "yes", "lines": [1], "none": None}, {"costly": "yes"}),
    "e": ({"note": "x" * 100}, {"note": "x" * 77 + "..."}),
    "f": ({"tool": "ping", "arguments": {}}, None),
    "g": ("late", None),
    "h": (None, None),
}


def test_a_list_says_the_amount_or_the_first_argument_and_who_started_the_run(
    recorded: Recorded,
) -> None:
    for run_id, (reason, _) in ABOUT.items():
        recorded.write(asked(run_id, reason=reason, run={"started_by": "grace"}))

    expected = {run_id: about for run_id, (_, about) in ABOUT.items()}
    listed = inbox(recorded).items
    assert {each.run_id: each.about for each in listed} == expected
    assert {each.started_by for each in listed} == {"grace"}
    found = recorded.read(runs.page, RunFilter()).items
    assert {run.run_id: run.interrupts[0].about for run in found} == expected


def test_the_questions_of_a_run_are_those_that_wait_and_then_the_settled_ones(
    recorded: Recorded,
) -> None:
    recorded.write(
        batch(
            run_view("a"),
            question("a", "z", minute=1),
            question("a", "held", minute=1, status="held"),
            question("a", "b", minute=2),
            question("a", "late", status="answered", settled_at=at(9)),
            question("a", "early", minute=3, status="expired", settled_at=at(8)),
        ),
        asked("other"),
    )

    def of(status: str) -> list[str]:
        return [view.name for view in recorded.read(questions.of_run, "a", status=status)]

    assert of("all") == ["z", "held", "b", "early", "late"]
    assert of("open") == ["z", "b"]
    assert of("held") == ["held"]
    assert of("answered") == ["late"]
    assert recorded.read(questions.of_run, "none", status="all") == []


def test_another_deployment_does_not_see_a_question(recorded: Recorded) -> None:
    recorded.write(asked("a"))
    other = Recorded(recorded.database, "theirs")

    assert inbox(other).total == 0
    assert inbox(other, graph="refund").total == 0
    assert other.read(questions.of_run, "a") == []
    assert other.read(questions.question, "a", "a.pay") is None


def test_a_page_takes_a_few_queries_however_long_it_is(recorded: Recorded) -> None:
    recorded.write(*(asked(f"r{number}") for number in range(30)))

    with recorded.statements() as statements:
        page = inbox(recorded, q="pay", started_by=None, graph="refund")

    assert len(page.items) == 30
    assert len(statements) <= 3
