"""Fields that only the start of a run sets, and the people whom they name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from core_askers import BOB, CAROL, ROOT, refusal_of
from core_drive import Drive, chain, gate, graph, nested

from abeyance.core import events
from abeyance.core.json import Json
from abeyance.core.run_retry import retried
from abeyance.core.spec import START, AskHuman, FunctionNode, GraphSpec, Reducer
from abeyance.core.terms import Quorum, Terms
from abeyance.errors import Code, Refusal

FIELDS: Mapping[str, Reducer] = {"requester": "start", "lead": "start", "note": "last"}
NAMED: dict[str, Json] = {"requester": "carol", "lead": "ada"}
APPROVAL = {"properties": {"approved": {"type": "boolean"}}}


def run_of(*nodes: Any, values: Mapping[str, Json] = NAMED, **about: Any) -> Drive:
    return Drive(chain(*nodes, fields=FIELDS, **about), values=values)


def open_as(run: Drive, name: str = "ask") -> tuple[tuple[str, ...], dict[str, str]]:
    """Return for whom an open question is, and whom it bars."""
    entry = run.open(name)
    assert entry.terms is not None
    return entry.terms.assignees, dict(entry.barred)


# people


def test_the_people_of_a_question_are_those_whom_the_start_named() -> None:
    quorum = Quorum(count=2, of=("{lead}", "bob", "ada", "{requester}"))
    terms = Terms(
        assignees=("{lead}", "group:of-{requester}"), not_by=("{requester}",), quorum=quorum
    )
    run = run_of(gate("ask", terms=terms, schema=APPROVAL))

    assert open_as(run) == (("ada", "group:of-carol"), {"carol": "{requester}"})
    assert run.open("ask").quorum == Quorum(count=2, of=("ada", "bob", "carol"))
    refusal = refusal_of(run, CAROL)
    assert (refusal.code, refusal.details["not_by"]) == (
        Code.SEPARATION_OF_DUTIES,
        ["{requester}"],
    )
    assert "You are the 'requester' of this run" in refusal.message


@pytest.mark.parametrize(
    "name",
    [None, 5, "", "a b", "a,b", "{lead}", "*", "@starter", "group:all", "temporal", "timeout"],
)
@pytest.mark.parametrize("option", ["assignees", "not_by"])
def test_a_question_for_nobody_is_not_asked(option: str, name: Json) -> None:
    terms = Terms(**{option: ("{requester}",)})  # type: ignore[arg-type]
    run = run_of(gate("ask", terms=terms), values={"requester": name})

    assert (run.status, run.error[0]) == ("failed", "unknown_person")
    assert "'requester' is " in run.error[1]


def test_an_edit_asks_the_same_people_anew() -> None:
    terms = Terms(assignees=("{lead}",), not_by=("{requester}",))
    run = run_of(gate("ask", prompt="Buy {note}?", terms=terms), values={**NAMED, "note": "a"})
    run.edit(ROOT, note="b")

    assert run.open("ask").prompt == "Buy b?"
    assert open_as(run) == (("ada",), {"carol": "{requester}"})


def test_a_graph_that_names_people_by_a_field_that_is_new_leaves_them_as_they_were() -> None:
    run = run_of(gate("ask", prompt="Buy {note}?", terms=Terms(assignees=("{lead}",))))
    later = gate("ask", prompt="Buy {note}?", terms=Terms(assignees=("{owner}",)))
    spec = chain(later, fields={**FIELDS, "owner": "start"})
    run.feed(events.Migrated, principal=ROOT, spec=spec)
    run.edit(ROOT, note="b")

    assert (run.open("ask").prompt, open_as(run)[0]) == ("Buy b?", ("ada",))


def test_a_question_that_is_asked_anew_bars_whom_its_new_terms_bar() -> None:
    """The run has moved to a graph with other rules, and its values are edited."""
    terms = Terms(quorum=Quorum(count=2))
    ways = [(START, name) for name in ("first", "ask", "last")]

    def spec(terms: Terms) -> GraphSpec:
        ask = gate("ask", prompt="Buy {note}?", schema=APPROVAL, terms=terms)
        last = gate("last", terms=Terms(not_by=("ask",)))
        return graph(gate("first"), ask, last, ways=ways, fields=FIELDS)

    run = Drive(spec(terms), values=NAMED)
    run.answer("first", "yes", principal=BOB)
    run.answer("ask", {"approved": True}, principal=BOB)
    assert run.open("last").barred == {"bob": "ask"}
    later = spec(replace(terms, not_by=("first", "{requester}")))
    run.feed(events.Migrated, principal=ROOT, spec=later)
    run.edit(ROOT, note="b")
    run.read_again()

    assert open_as(run)[1] == {"carol": "{requester}", "bob": "first"}
    # The vote was on what the question showed before, so it bars nobody from another question.
    assert (run.open("ask").votes, run.open("last").barred) == ((), {})
    assert refusal_of(run, BOB).code is Code.SEPARATION_OF_DUTIES


# the field


@pytest.mark.parametrize("patch", [{"requester": "eve"}, {"requester": None}])
def test_code_cannot_change_what_the_start_has_set(patch: dict[str, Json]) -> None:
    run = run_of("work")
    run.finish("work", patch)

    assert (run.status, run.error[0]) == ("failed", "invalid_patch")
    assert "'requester', which only the start of the run sets" in run.error[1]


def test_code_may_return_what_the_start_has_set() -> None:
    run = run_of("work")
    run.finish("work", {"requester": "carol", "note": "x"})

    assert (run.status, run.values) == ("completed", {**NAMED, "note": "x"})


def test_an_answer_to_a_nested_question_does_not_change_it_around() -> None:
    inner = chain("work", name="inner", fields={"requester": "last"})
    run = run_of(nested("sub", inner, input=None, output=None))
    run.finish("work", {"requester": "eve"})

    assert (run.status, run.values["requester"]) == ("failed", "carol")


Change = Callable[..., tuple[type[events.Event], dict[str, Any]]]


def by_an_edit() -> tuple[Drive, Change]:
    run = run_of(gate("ask"))
    about = {"principal": ROOT, "version": run.state.root.version}
    return run, lambda **patch: (events.ValuesEdited, {**about, "patch": patch})


def at_a_breakpoint() -> tuple[Drive, Change]:
    run = run_of("work", before=["work"])
    return run, lambda **values: answering(run, {"values": values, "version": 1})


def in_place_of_a_failed_node() -> tuple[Drive, Change]:
    run = run_of(FunctionNode(id="work", on_error=AskHuman()))
    run.fail("work")
    return run, lambda **patch: answering(run, {"action": "skip", "patch": patch})


def by_a_migration(today: Mapping[str, Reducer] = FIELDS) -> tuple[Drive, Change]:
    moved = {"principal": ROOT, "spec": chain(gate("ask"), "after", fields=today)}
    return run_of(gate("ask")), lambda **patch: (events.Migrated, {**moved, "patch": patch})


def by_a_migration_that_would_let_it() -> tuple[Drive, Change]:
    return by_a_migration({**FIELDS, "lead": "last"})


def answering(run: Drive, answer: Json) -> tuple[type[events.Event], dict[str, Any]]:
    (id_,) = run.state.ledger.open
    return events.Responded, run.response({id_: answer}, principal=ROOT)


@pytest.mark.parametrize(
    ("door", "place"),
    [
        (by_an_edit, ""),
        (at_a_breakpoint, "/values"),
        (in_place_of_a_failed_node, "/patch"),
        (by_a_migration, "/patch"),
        (by_a_migration_that_would_let_it, "/patch"),
    ],
)
def test_a_person_cannot_change_it(door: Callable[[], tuple[Drive, Change]], place: str) -> None:
    run, change = door()
    kind, fields = change(lead="eve", note="x")
    refusal = run.refused(kind, **fields)
    assert refusal.code is Code.READ_ONLY_FIELD
    assert [each["pointer"] for each in refusal.details["errors"]] == [f"{place}/lead"]

    kind, fields = change(lead="ada", note="x")
    run.feed(kind, **fields)
    assert run.values == {**NAMED, "note": "x"}


def test_a_migration_cannot_set_a_field_that_only_the_start_sets() -> None:
    run = run_of(gate("ask"))
    moved = {"principal": ROOT, "spec": chain(gate("ask"), fields={**FIELDS, "owner": "start"})}

    refusal = run.refused(events.Migrated, **moved, patch={"owner": "eve"})
    assert refusal.code is Code.READ_ONLY_FIELD


def test_a_retry_cannot_set_a_field_that_only_the_start_sets() -> None:
    run = run_of("work")
    run.fail("work")
    about: dict[str, Any] = {"spec": None, "versions": ("1", "1"), "renames": {}}
    with pytest.raises(Refusal) as refused:
        retried(run.state, now=run.now, principal=ROOT, patch={"lead": "eve"}, **about)

    assert refused.value.code is Code.READ_ONLY_FIELD
