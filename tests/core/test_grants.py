"""Grants: what an approver may remember, and which calls that covers."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from core_agents import gated, reviewing, turn
from core_drive import Drive, at, chain, gate

from abeyance.core import approvals
from abeyance.core.approvals import MOST, MOST_BYTES, Grant, Wanted
from abeyance.core.events import Responded
from abeyance.core.json import Json, rfc3339
from abeyance.core.policy import TEMPORAL, Principal
from abeyance.core.spec import FunctionNode, ReturnErrorToCaller
from abeyance.core.terms import Quorum, Remember, Terms
from abeyance.errors import Code, Refusal

ADA = Principal(subject="ada", capabilities=("pay",))
ALLOWED = Remember(
    most=3_600.0, where=("run", "graph"), same=("to",), below={"amount": 200}, declaration="d"
)
SEND = FunctionNode(id="send", on_error=ReturnErrorToCaller(), asks=("pay",))
CALL = {"tool": "pay", "arguments": {"amount": 5, "to": "bob"}}
YES: Json = {"approved": True, "remember": {"for": "1h", "where": "graph", "uses": 2}}


def made(**fields: Any) -> Grant:
    about: dict[str, Any] = {"id": "g", "tool": "pay", "declaration": "d", "graph": "refunds"}
    about |= {"same": {"to": "bob"}, "below": {"amount": 200}, "by": "ada", "capability": "pay"}
    return Grant(**{**about, "made_at": at(0), "until": at(7_200), **fields})


def wanted(**fields: Any) -> Wanted:
    about: dict[str, Any] = {"tool": "pay", "declaration": "d", "graph": "refunds", "run_id": "r"}
    about |= {"origin": "o", "call": "c", "arguments": {"amount": 5, "to": "bob"}}
    return Wanted(**{**about, **fields})


@pytest.mark.parametrize(
    ("fields", "is_covered"),
    [
        ({}, True),
        ({"tool": "send"}, False),
        ({"declaration": "another"}, False),
        ({"graph": "payouts"}, False),
        ({"arguments": {"amount": 199.99, "to": "bob", "note": "x"}}, True),
        ({"arguments": {"amount": 200, "to": "bob"}}, False),
        ({"arguments": {"amount": "5", "to": "bob"}}, False),
        ({"arguments": {"amount": True, "to": "bob"}}, False),
        ({"arguments": {"amount": float("-inf"), "to": "bob"}}, False),
        ({"arguments": {"to": "bob"}}, False),
        ({"arguments": {"amount": 5, "to": "Bob"}}, False),
        ({"arguments": {"amount": 5}}, False),
    ],
)
def test_a_grant_covers_calls_with_the_same_values_below_its_bounds(
    fields: dict[str, Any], is_covered: bool
) -> None:
    assert made().covers(wanted(**fields)) is is_covered


def test_values_are_the_same_by_their_canonical_json() -> None:
    grant = made(same={"to": {"iban": 1, "name": "Bob"}})
    assert grant.covers(wanted(arguments={"amount": 5, "to": {"name": "Bob", "iban": 1.0}}))


def test_a_grant_of_one_run_covers_that_alone() -> None:
    grant = made(run_id="r")
    assert grant.covers(wanted())
    assert not grant.covers(wanted(run_id="another"))


@pytest.mark.parametrize(
    ("fields", "seconds", "maker", "is_known", "holds"),
    [
        ({}, 7_199, ADA, True, True),
        ({}, 7_200, ADA, True, False),
        ({}, 60, None, True, False),
        ({}, 60, replace(ADA, capabilities=("runs:read",)), True, False),
        ({"capability": None}, 60, replace(ADA, capabilities=()), True, True),
        ({"until": at(9 * 86_400)}, 86_399, None, False, True),
        ({"until": at(9 * 86_400)}, 86_400, None, False, False),
        ({"is_issued": True, "until": at(9 * 86_400)}, 2 * 86_400, None, True, True),
        ({"is_issued": True}, 7_200, None, False, False),
        ({"is_issued": True}, 60, replace(ADA, capabilities=("runs:read",)), True, False),
    ],
)
def test_a_grant_holds_until_its_end_while_its_maker_has_the_capability(
    fields: dict[str, Any], seconds: float, maker: Principal | None, is_known: bool, holds: bool
) -> None:
    assert made(**fields).holds(at(seconds), maker, is_known=is_known) is holds


def approving(*, remember: Remember | None = ALLOWED, shown: Json = CALL, **about: Any) -> Drive:
    """Start a run whose agent wants to call `pay`; a yes to this call may be remembered."""
    run = reviewing(SEND)
    asked = gated("c1", "send", reason=shown, requested_capability="pay", **about)
    assert asked.call is not None
    (question,) = asked.call.interrupts
    spec = replace(question, remember=remember)
    turn(run, replace(asked, call=replace(asked.call, interrupts=(spec,))))
    return run


def answered(run: Drive, answer: Json = YES, **about: Any) -> dict[str, Any]:
    id_ = run.open("approve").id
    given = {"principal": ADA, "lasts": {id_: 3_600.0}, **about}
    return run.response({id_: answer}, **given)


def granted(run: Drive) -> Json:
    """Return the grants that the run has published, as the records get them."""
    found = run.facts("approval.remembered")
    return [fact.audit and fact.audit["grant"] for fact in found]


def test_a_yes_that_is_remembered_publishes_the_whole_grant() -> None:
    run = approving()
    run.feed(Responded, **answered(run))

    (grant,) = granted(run)
    assert grant == {
        "id": grant["id"],
        "tool": "pay",
        "declaration": "d",
        "graph": "g",
        "run_id": None,
        "same": {"to": "bob"},
        "below": {"amount": 200},
        "by": "ada",
        "capability": "pay",
        "made_at": grant["made_at"],
        "until": grant["until"],
        "uses": 2,
        "is_issued": False,
    }
    (order,) = run.orders("send")
    assert order.own_answers == {"/approval/approve": {"approved": True}}


OWN_FIELD: Json = {"type": "object", "properties": {"remember": {"type": "object"}}}


@pytest.mark.parametrize("schema", [None, {"type": "object"}])
def test_only_a_yes_to_a_tool_call_can_be_remembered(
    schema: Json,
) -> None:
    run = Drive(chain(gate("ask", schema=schema)))
    refusal = run.refused_answer("ask", YES, principal=ADA)

    assert refusal.code is Code.NOT_REMEMBERABLE
    assert "not an approval of a tool call" in refusal.message


def test_a_field_of_the_authors_may_have_the_name_of_what_is_remembered() -> None:
    run = Drive(chain(gate("ask", schema=OWN_FIELD)))
    run.answer("ask", YES, principal=ADA)

    assert granted(run) == []
    assert run.state.finished


def test_a_plain_yes_grants_nothing() -> None:
    run = approving()
    run.feed(Responded, **answered(run, {"approved": True}))
    assert granted(run) == []


def test_a_grant_ends_with_the_vouching_of_the_issuer() -> None:
    run = approving()
    run.feed(Responded, **answered(run, vouched_until=run.now + timedelta(seconds=9)))
    (grant,) = granted(run)
    assert grant["is_issued"] is True
    assert grant["until"] < rfc3339(run.now + timedelta(seconds=60))


@pytest.mark.parametrize(
    ("about", "response", "why"),
    [
        ({"remember": None}, {}, "lets nobody remember"),
        ({"terms": Terms(quorum=Quorum(count=2))}, {}, "several people or particular ones"),
        ({"terms": Terms(not_by=("@starter",))}, {}, "several people or particular ones"),
        (
            {"terms": Terms(assignees=("ada",), assignees_only=True)},
            {},
            "several people or particular ones",
        ),
        ({"terms": Terms(hold=60.0)}, {}, "can be taken back"),
        ({"shown": {"tool": "pay", "arguments": {"amount": 5}}}, {}, "has no 'to'"),
        ({"shown": None}, {}, "does not show the arguments"),
        ({}, {"answer": {**YES, "arguments": {"amount": 9}}}, "changes the arguments"),
        ({}, {"principal": replace(ADA, capabilities=("*",))}, "as somebody who has"),
        ({}, {"remember_only": "nothing"}, "answers one question"),
        ({}, {"granted": MOST}, f"have {MOST} grants"),
        ({}, {"granted_bytes": MOST_BYTES - 1_500}, "take 254500 bytes and this one 1512"),
    ],
)
def test_a_grant_that_the_terms_do_not_allow_is_refused(
    about: dict[str, Any], response: dict[str, Any], why: str
) -> None:
    run = approving(**about)
    entry = run.open("approve")
    refusal = run.refused(Responded, **answered(run, **response))

    assert refusal.code is Code.NOT_REMEMBERABLE
    assert why in refusal.message
    assert (approvals.offered(entry) is None) is not bool(response)


def test_an_answer_from_temporal_is_not_remembered() -> None:
    run = reviewing()
    asked = gated("c1", reason=CALL)
    assert asked.call is not None
    (question,) = asked.call.interrupts
    call = replace(asked.call, interrupts=(replace(question, remember=ALLOWED),))
    turn(run, replace(asked, call=call))
    refusal = run.refused(Responded, **answered(run, principal=TEMPORAL))
    assert "not known who answers" in refusal.message
    anybody = Principal(subject="ada", capabilities=("*",))
    refusal = run.refused(Responded, **answered(run, principal=anybody))
    assert "as somebody whose capabilities are listed" in refusal.message
    run.feed(Responded, **answered(run, principal=Principal(subject="ada")))
    assert len(granted(run)) == 1


@pytest.mark.parametrize(
    ("allowed", "about", "why"),
    [
        (replace(ALLOWED, most=3_599.0), {}, "the author allows at most 0:59:59"),
        (replace(ALLOWED, where=("run",)), {}, "the author allows run"),
        (ALLOWED, {"remember_only": "run"}, "you see only some runs"),
    ],
)
def test_more_than_the_author_allows_is_too_wide(
    allowed: Remember, about: dict[str, Any], why: str
) -> None:
    run = approving(remember=allowed)
    refusal = run.refused(Responded, **answered(run, **about))
    assert refusal.code is Code.GRANT_TOO_WIDE
    assert refusal.details["most"] == allowed.most
    assert why in refusal.message


def test_a_grant_beyond_its_makers_capabilities_is_too_wide() -> None:
    run = approving()
    entry = run.open("approve")
    event = Responded(
        now=at(0),
        principal=replace(ADA, capabilities=("runs:respond",)),
        answers={},
        schema_faults={},
        lasts={entry.id: 1.0},
    )
    with pytest.raises(Refusal) as refused:
        approvals.refuse_too_wide(entry, YES, event)
    assert (refused.value.code, "which you lack" in refused.value.message) == (
        Code.GRANT_TOO_WIDE,
        True,
    )


def test_a_grant_is_revoked_by_its_maker_or_with_the_capability_for_it() -> None:
    bob = Principal(subject="bob")
    approvals.refuse_foreign(made(), ADA, "runs:control")
    approvals.refuse_foreign(made(), replace(bob, capabilities=("runs:control",)), "runs:control")
    with pytest.raises(Refusal) as refused:
        approvals.refuse_foreign(made(), bob, "runs:control")
    assert refused.value.code is Code.CAPABILITY_REQUIRED
    assert approvals.unknown("x").code is Code.NOT_FOUND


def test_the_same_answer_is_the_same_grant_and_after_a_rewind_another() -> None:
    first, again = approving(), approving()
    for run in (first, again):
        run.feed(Responded, **answered(run))
    assert granted(first)[0]["id"] == granted(again)[0]["id"]
    other = approving(shown={"tool": "pay", "arguments": {"amount": 6, "to": "bob"}})
    other.state.era = "rewound"
    other.feed(Responded, **answered(other))
    assert granted(other)[0]["id"] != granted(first)[0]["id"]
