"""The book of delegations: what may be lent, by whom, for how long, and who ends it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from core_drive import ROOT, T0, at

from abeyance.core.delegations import LONGEST, MOST, Delegations, Wanted
from abeyance.core.policy import Principal
from abeyance.errors import Code, Refusal

ADA = Principal(
    subject="ada", capabilities=("refunds:approve", "runs:respond", "admin"), groups=("finance",)
)
BOB = Principal(subject="bob")


def wanted(maker: Principal = ADA, id_: str = "d", **fields: Any) -> Wanted:
    return Wanted(id=id_, maker=maker, **{"to": "bob", "until": at(3600), **fields})


def refusal_of(book: Delegations | None = None, **fields: Any) -> Refusal:
    with pytest.raises(Refusal) as refused:
        (book or Delegations()).made(wanted(**fields), T0)
    return refused.value


def test_a_delegation_lends_what_its_maker_names() -> None:
    book = Delegations().made(wanted(capabilities=("refunds:approve",), reason="away"), T0)
    (made,) = book.of("bob", T0)
    assert (made.by, made.capabilities, made.groups) == ("ada", ("refunds:approve",), ("finance",))
    assert (made.since, made.until, made.reason) == (T0, at(3600), "away")
    assert made.created_at == T0
    assert book.of("ada", T0) == ()


def test_a_delegation_without_names_lends_all_that_its_maker_may_lend() -> None:
    (made,) = Delegations().made(wanted(), T0).all
    assert made.capabilities == ("refunds:approve",)
    (made,) = Delegations().made(wanted(ROOT), T0).all
    assert made.capabilities is None
    assert [made.may(name) for name in ("anything", None, "admin")] == [True, True, False]
    (made,) = Delegations().made(wanted(ROOT, capabilities=("a:b",)), T0).all
    assert made.capabilities == ("a:b",)


@pytest.mark.parametrize("name", ["*", "admin", "runs:respond", "refunds:*"])
def test_capabilities_beyond_questions_cannot_be_lent(name: str) -> None:
    refusal = refusal_of(maker=ROOT, capabilities=(name,))
    assert refusal.code is Code.INVALID_BODY
    assert refusal.details["errors"][0]["pointer"] == "/capabilities"


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"until": T0 + LONGEST + timedelta(seconds=1)}, "/until"),
        ({"until": T0}, "/until"),
        ({"since": at(3600)}, "/until"),
        ({"to": "ada"}, "/to"),
        ({"to": "group:finance"}, "/to"),
    ],
)
def test_a_delegation_has_a_time_and_another_person(fields: dict[str, Any], pointer: str) -> None:
    refusal = refusal_of(**fields)
    assert refusal.code is Code.INVALID_BODY
    (fault,) = refusal.details["errors"]
    assert fault["pointer"] == pointer
    assert refusal.message == f"This cannot be delegated: {fault['message']}."
    assert Delegations().made(wanted(until=T0 + LONGEST), T0).all


def test_nobody_lends_what_they_do_not_have() -> None:
    refusal = refusal_of(capabilities=("refunds:approve", "payments:release", "a:b"))
    assert refusal.code is Code.CAPABILITY_REQUIRED
    assert "You cannot lend 'a:b', 'payments:release'" in refusal.message
    assert refusal.details == {"capability": "a:b", "capabilities": ["a:b", "payments:release"]}


def test_the_same_call_again_makes_nothing_and_what_has_ended_is_forgotten() -> None:
    book = Delegations().made(wanted(), T0)
    assert book.made(wanted(), T0) == book
    later = book.made(wanted(id_="e", until=at(9_000)), at(3600))
    assert [each.id for each in later.all] == ["e"]


def filled(*makers: str, **fields: Any) -> tuple[Delegations, list[str]]:
    """Return a book in which each maker has made all that fit, and the messages of the refusals."""
    book, told = Delegations(), []
    for maker in makers:
        for number in range(MOST + 1):
            order = wanted(Principal(subject=maker), id_=f"{maker}{number}", **fields)
            try:
                book = book.made(order, T0)
            except Refusal as refusal:
                assert refusal.code is Code.INVALID_BODY
                (fault,) = refusal.details["errors"]
                assert refusal.message == f"This cannot be delegated: {fault['message']}."
                told.append(fault["message"])
                break
    return book, told


def test_a_maker_has_at_most_fifty_delegations() -> None:
    book, told = filled("ada", "dan")

    assert len(book.all) == 2 * MOST
    assert told[0] == "you have made 50 delegations, which is the limit: delete some of them"


def test_the_delegations_of_one_maker_are_bounded_in_bytes() -> None:
    book, told = filled("ada", "dan", reason="\N{GRINNING FACE}" * 2_000)

    assert [each.by for each in book.all] == ["ada"] * 30 + ["dan"] * 30
    assert "256000 fit: shorten the reason" in told[0]


def test_the_maker_or_an_administrator_deletes_a_delegation() -> None:
    book = Delegations().made(wanted(), T0).made(wanted(id_="other"), T0)
    with pytest.raises(Refusal) as refused:
        book.withdrawn("d", BOB)
    assert refused.value.code is Code.CAPABILITY_REQUIRED
    assert "'d' is by 'ada'" in refused.value.message
    assert refused.value.details == {"capability": "admin", "capabilities": ["admin"]}
    admin = Principal(subject="boss", capabilities=("admin",))
    for who in (ADA, admin):
        assert [each.id for each in book.withdrawn("d", who).all] == ["other"]
    with pytest.raises(Refusal) as refused:
        book.withdrawn("e", ADA)
    assert refused.value.code is Code.NOT_FOUND
    assert "no delegation 'e'" in refused.value.message
    assert refused.value.details == {"delegation_id": "e"}


def test_the_same_request_to_delete_again_finds_what_it_deleted() -> None:
    book = Delegations().made(wanted(), T0).made(wanted(id_="other"), T0)
    once = book.withdrawn("d", ADA)
    assert once.withdrawn("d", ADA) == once
    assert once.one("d", ADA) == book.all[0]
    with pytest.raises(Refusal):
        once.one("d", BOB)


def test_all_that_is_lent_is_bounded_and_only_the_last_that_were_deleted_are_known() -> None:
    makers = [f"maker {number}" for number in range(6)]
    _, told = filled(*makers, reason="\N{GRINNING FACE}" * 2_000)
    assert "1000000 fit: somebody with the capability 'admin'" in told[-1]
    book = Delegations()
    for number in range(1_001):
        book = book.made(wanted(id_=f"d{number}"), T0).withdrawn(f"d{number}", ADA)
    assert [*book.deleted] == [f"d{number}" for number in range(1, 1_001)]


def test_everybody_sees_those_that_they_made_or_may_use_and_an_administrator_all() -> None:
    book = Delegations().made(wanted(), T0).made(wanted(ROOT, "e", to="carol"), T0)
    carol = Principal(subject="carol")
    assert [each.id for each in book.seen_by(BOB, T0)] == ["d"]
    assert [each.id for each in book.seen_by(carol, T0)] == ["e"]
    assert [each.id for each in book.seen_by(ADA, T0)] == ["d", "e"]
    assert book.seen_by(ADA, at(3600)) == ()


def test_a_repeated_request_does_not_make_a_deleted_delegation_again() -> None:
    book = Delegations().made(wanted(), T0).withdrawn("d", ADA)
    for each in (book, book.made(wanted(id_="e"), T0)):
        refusal = refusal_of(each)
        assert refusal.code is Code.INVALID_BODY
        (fault,) = refusal.details["errors"]
        assert (fault["pointer"], "deleted" in fault["message"]) == ("", True)
    later = book.made(wanted(id_="e", until=at(9_000)), at(3600))
    assert later.deleted == {}


@pytest.mark.parametrize(
    "fields", [{"to": "carol"}, {"capabilities": ()}, {"since": at(1)}, {"reason": "why"}]
)
def test_another_delegation_under_the_same_key_is_refused(fields: dict[str, Any]) -> None:
    refusal = refusal_of(Delegations().made(wanted(), T0), **fields)
    assert refusal.code is Code.IDEMPOTENCY_CONFLICT
    assert "use another key" in refusal.message
