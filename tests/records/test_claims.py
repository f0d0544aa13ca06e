"""Claims of runs on their conversations, and delegations: one change at a time, on each database."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from recorded import NOON, Recorded, at, batch, opened, run_view
from sqlalchemy import select

from abeyance.core.delegations import MOST, Delegations, Wanted
from abeyance.core.policy import Principal
from abeyance.errors import Code, Refusal
from abeyance.records import claims, delegations, outside
from abeyance.records.claims import Claim
from abeyance.records.outside import End
from abeyance.records.tables import delegations as table

ADA = Principal(subject="ada", capabilities=("pay",))


def claim(run_id: str, *, minute: float = 0, **fields: Any) -> Claim:
    about = {"session_type": "agent", "token": f"token of {run_id}", "claimed_at": at(minute)}
    return Claim(**{"run_id": run_id, **about, **fields})


def held(recorded: Recorded, talk: str = "talk") -> list[str]:
    return [each.run_id for each in recorded.read(claims.of_conversation, talk)]


def test_one_of_ten_concurrent_starts_gets_the_conversation(recorded: Recorded) -> None:
    def claimed(number: int) -> Code | None:
        try:
            recorded.change(claims.make, "talk", claim(f"r{number}"))
        except Refusal as refusal:
            return refusal.code
        return None

    with ThreadPoolExecutor(10) as threads:
        found = [*threads.map(claimed, range(10))]

    assert sorted(map(str, found)) == ["None", *[str(Code.CONVERSATION_BUSY)] * 9]
    assert len(held(recorded)) == 1
    assert held(recorded, "another") == []


def test_a_repeated_claim_with_its_token_renews_it(recorded: Recorded) -> None:
    recorded.change(claims.make, "talk", claim("a"))
    recorded.change(claims.make, "talk", claim("a", minute=5))

    assert recorded.read(claims.of_conversation, "talk") == [claim("a", minute=5)]


def test_the_batch_that_ends_a_run_takes_back_the_claim_of_this_start_alone(
    recorded: Recorded,
) -> None:
    for name in ("first", "second"):
        recorded.change(claims.make, "talk", claim("a", token=name))
    recorded.write(batch(run_view("a", status="completed"), claim="first"))

    (left,) = recorded.read(claims.of_conversation, "talk")
    assert left == claim("a", token="second")


def test_an_end_found_outside_takes_back_what_was_claimed_before(recorded: Recorded) -> None:
    recorded.change(claims.make, "talk", claim("a", token="first", minute=1))
    recorded.change(claims.make, "talk", claim("a", token="second", minute=9))
    recorded.write(batch(run_view("a")))
    view = run_view("a", status="cancelled", ended_at=at(5), degraded=True)
    recorded.change(outside.end, [End(origin="a-first", view=view)])

    assert recorded.read(claims.of_conversation, "talk") == [claim("a", token="second", minute=9)]


def test_a_claim_is_released_by_its_token(recorded: Recorded) -> None:
    recorded.change(claims.make, "talk", claim("a"))
    recorded.change(claims.release, ["token of a", "unknown"])
    assert held(recorded) == []


def test_a_delegation_is_sealed(database_url: str) -> None:
    with opened(database_url, "k") as sealed:
        book = sealed.change(delegations.change, lambda book: book.made(wanted("one"), NOON))
        document = sealed.read(lambda tx: tx.connection.scalars(select(table.c.document)).one())

        assert document.startswith("sealed:")
        assert sealed.read(delegations.book) == book


def wanted(id_: str) -> Wanted:
    return Wanted(id=id_, maker=ADA, to="bob", until=NOON + timedelta(days=1), reason="ill")


def test_however_many_delegations_are_made_at_once_no_more_than_fit_are(recorded: Recorded) -> None:
    def made(number: int) -> bool:
        try:
            recorded.change(delegations.change, lambda book: book.made(wanted(f"d{number}"), NOON))
        except Refusal:
            return False
        return True

    with ThreadPoolExecutor(10) as threads:
        found = [*threads.map(made, range(MOST + 5))]

    assert found.count(False) == 5
    assert len(recorded.read(delegations.book).all) == MOST


def test_delegations_are_read_as_they_were_changed(recorded: Recorded) -> None:
    book = Delegations()
    changes: list[Callable[[Delegations], Delegations]] = [
        lambda book: book.made(wanted("one"), NOON),
        lambda book: book.made(wanted("two"), NOON),
        lambda book: book.withdrawn("one", ADA),
        lambda book: book.withdrawn("two", ADA),
        lambda book: book.made(wanted("three"), NOON),
        lambda book: book.made(wanted("three"), NOON),
    ]
    for change in changes:
        book = change(book)
        assert recorded.change(delegations.change, change) == book
        assert recorded.read(delegations.book) == book
    with pytest.raises(Refusal, match="deleted: make another"):
        recorded.change(delegations.change, lambda book: book.made(wanted("one"), NOON))
    # Two days later they are over, and no caller repeats their calls: the records drop them.
    late = NOON + timedelta(days=2)
    later = Wanted(id="four", maker=ADA, to="bob", until=late + timedelta(days=1))
    recorded.change(delegations.change, lambda book: book.made(later, late))
    assert [each.id for each in recorded.read(delegations.book).all] == ["four"]
