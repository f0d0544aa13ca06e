"""The active runs of a conversation, and who may start another one beside them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from abeyance.errors import Code, Refusal
from abeyance.records.claims import MAX_CLAIMS, Claim, refuse

NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)


def claim(run_id: str, **fields: object) -> Claim:
    base = Claim(run_id=run_id, session_type="agent", token=f"token of {run_id}", claimed_at=NOW)
    return replace(base, **fields)  # type: ignore[arg-type]


def ask(wanted: Claim, *held: Claim) -> None:
    refuse("talk", held, wanted)


def test_a_second_agent_is_refused() -> None:
    with pytest.raises(Refusal) as refused:
        ask(claim("two"), claim("one"))

    assert refused.value.code is Code.CONVERSATION_BUSY
    assert refused.value.details == {"conversation_id": "talk", "run_id": "one", "runs": ["one"]}
    assert "has an active run 'one'" in refused.value.message


def test_others_than_agents_and_those_who_ask_for_it_start_beside() -> None:
    helper = claim("helper", session_type="helper")
    two = claim("two", allow_concurrent=True)
    ask(helper, claim("one"))
    ask(two, claim("one"), helper)
    with pytest.raises(Refusal) as refused:
        ask(claim("three"), claim("one"), helper, two)

    assert refused.value.details["runs"] == ["one", "two"]


def test_a_refused_start_lists_twenty_active_runs_each_once() -> None:
    names = [f"r{number}" for number in range(21)]
    many = (claim(name, token=token) for name in names for token in (f"{name}a", f"{name}b"))
    with pytest.raises(Refusal) as refused:
        ask(claim("one more"), *many)

    assert refused.value.details["runs"] == names[:20]


def test_an_id_that_is_used_again_does_not_stand_in_its_own_way() -> None:
    ask(claim("one", token="second"), claim("one", token="first"))


def test_a_conversation_is_bounded() -> None:
    full = [claim(f"r{n}", session_type="helper") for n in range(MAX_CLAIMS)]
    with pytest.raises(Refusal) as refused:
        ask(claim("one more"), *full)

    assert refused.value.code is Code.TOO_MANY_RUNS
    assert refused.value.details == {"conversation_id": "talk", "limit": 1_000, "actual": 1_000}
    assert "has 1000 active runs" in refused.value.message
