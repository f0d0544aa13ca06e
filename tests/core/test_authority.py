"""Rights: who sees a run, and that a change of course always takes all that the run can ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import cache
from typing import Any

import pytest
from core_agents import agent_node
from core_drive import Drive, asked, chain, gate, nested
from core_gated import Gated, approving, refund
from core_graphs import ask, rule

from abeyance.core import events, policy
from abeyance.core.json import Json
from abeyance.core.policy import ALL_RUNS, TEMPORAL, Principal, ReadRights
from abeyance.core.spec import AskHuman, FunctionNode, GoTo, Halt
from abeyance.core.terms import Escalation, Terms

# every operation, at every moment, by everybody

COURSE = {"runs:control", "approve", "audit"}
PEOPLE: Mapping[str, Principal] = {
    "nobody": Principal(subject="nobody"),
    "controls": Principal(subject="controls", capabilities=("runs:control",)),
    "controls and answers": Principal(
        subject="controls and answers", capabilities=("runs:control", "runs:respond")
    ),
    "steers": Principal(subject="steers", capabilities=("runs:steer",)),
    "approves": Principal(subject="approves", capabilities=("approve",)),
    "controls and approves": Principal(
        subject="controls and approves", capabilities=("runs:control", "approve")
    ),
    "approves all": Principal(subject="approves all", capabilities=("approve", "audit")),
    "controls and approves all": Principal(
        subject="controls and approves all", capabilities=("audit", "approve", "runs:control")
    ),
    "everything": Principal(subject="everything", capabilities=("*",)),
    "temporal": TEMPORAL,
}
MOMENTS = ("before", "open", "answered", "begun", "static", "error", "ended")


def at(moment: str) -> Gated:
    """Return a run at a moment of its life: before its gate `ask`, at the gate, or after it."""
    return _reached(moment).copy()


@cache
def _reached(moment: str) -> Gated:
    spec = refund(
        gate("hello"),
        approving(),
        FunctionNode(id="pay", on_error=AskHuman()),
        FunctionNode(id="book", asks=("audit",)),
        before=["book"],
    )
    run = Gated(spec)
    if moment == "before":
        return run
    run.answer("hello", "hello")
    if moment == "open":
        return run
    run.pause()
    run.answer("ask", True, principal=PEOPLE["approves"])
    if moment == "answered":
        return run
    run.resume()
    match moment:
        case "static":
            run.finish("pay")
        case "error":
            run.fail("pay")
        case "ended":
            run.cancel(mode="now")
        case _:
            pass
    return run


Operation = Callable[[Gated, Principal], tuple[type[events.Event], dict[str, Any]]]


def answers(name: str, value: Json) -> Operation:
    return lambda run, who: (
        events.Responded,
        run.response({run.open(name).id: value}, principal=who),
    )


def says(action: str | None, **about: Any) -> Operation:
    def operation(run: Drive, who: Principal) -> tuple[type[events.Event], dict[str, Any]]:
        message = events.Message(
            message_id="m",
            text="please",
            sender=who.subject,
            capabilities=who.capabilities,
            action=action,
            params={"patch": {"note": "x"}, "steps": 1},
            **about,
        )
        return events.MessageSent, {"message": message}

    return operation


def edits_values(run: Gated, who: Principal) -> tuple[type[events.Event], dict[str, Any]]:
    version = run.state.root.version
    return events.ValuesEdited, {"principal": who, "patch": {"note": "x"}, "version": version}


def edits_deadline(**change: Any) -> Operation:
    def operation(run: Gated, who: Principal) -> tuple[type[events.Event], dict[str, Any]]:
        (id_,) = run.state.ledger.open
        later = run.now + timedelta(hours=1)
        given = {"moves": True, "deadline": later, **change}
        return events.DeadlineEdited, {"principal": who, "interrupt_id": id_, **given}

    return operation


def pauses(**about: Any) -> Operation:
    return lambda run, who: (
        events.Paused,
        {"actor": who.subject, "capabilities": who.capabilities, **about},
    )


def controls(kind: type[events.Event]) -> Operation:
    return lambda run, who: (kind, {"actor": who.subject})


OPERATIONS: Mapping[str, Operation] = {
    "answer hello": answers("hello", "hello"),
    "answer the gate": answers("ask", True),
    "go on": answers("interrupt_before", None),
    "edit at a look": answers("interrupt_before", {"values": {"note": "x"}, "version": 1}),
    "edit nothing at a look": answers("interrupt_before", {"values": {}, "version": 1}),
    "retry": answers("error", {"action": "retry"}),
    "skip at an error": answers("error", {"action": "skip"}),
    "skip with a patch": answers("error", {"action": "skip", "patch": {"note": "x"}}),
    "let fail": answers("error", {"action": "fail"}),
    "edit values": edits_values,
    "move a deadline": edits_deadline(),
    "remove a deadline": edits_deadline(deadline=None),
    "lead a deadline": edits_deadline(on_timeout=GoTo(node="pay")),
    "talk": says(None),
    "an action": says("dance"),
    "pause": pauses(),
    "pause and halt": pauses(timeout=5.0, on_timeout=Halt()),
    "pause and go to": pauses(timeout=5.0, on_timeout=GoTo(node="pay")),
    "resume": controls(events.Resumed),
    "cancel": controls(events.CancelRequested),
    "clear messages": controls(events.MessagesCleared),
}

# The capabilities that an operation requires: * control and all that the run can ask for, R control and
# the right to answer (or *), A the gate's own, - none. After a colon: why the run refuses the operation
# all the same. A dot: there is nothing that the operation could be done to.
CODES = {"runs": "not_stopped", "over": "not_running"}
# fmt: off
TABLE: Mapping[str, str] = {
    #                            before    open      answered  begun    static  error  ended
    "answer hello":              "-         .         .         .        .       .      .",
    "answer the gate":           ".         A         .         .        .       .      .",
    "go on":                     ".         .         .         .        -       .      .",
    "edit at a look":            ".         .         .         .        *       .      .",
    "edit nothing at a look":    ".         .         .         .        *       .      .",
    "retry":                     ".         .         .         .        .       R      .",
    "skip at an error":          ".         .         .         .        .       *      .",
    "skip with a patch":         ".         .         .         .        .       *      .",
    "let fail":                  ".         .         .         .        .       -      .",
    "edit values":               "*         *         *         *:runs   *       *      -:over",
    "move a deadline":           "*         *         .         .        *       *      .",
    "remove a deadline":         "*         *         .         .        *       *      .",
    "lead a deadline":           "*         *         .         .        *       *      .",
    "talk":                      "-         -         -         -        -       -      -:over",
    "an action":                 "-         -         -         -        -       -      -:over",
    "pause":                     "-         -         -         -        -       -      -",
    "pause and halt":            "-         -         -         -        -       -      -",
    "pause and go to":           "*         *         *         *        *       *      -",
    "resume":                    "-         -         -         -        -       -      -",
    "cancel":                    "-         -         -         -        -       -      -",
    "clear messages":            "-         -         -         -        -       -      -",
}
# fmt: on
CASES = [
    (operation, moment, cell, person)
    for operation, row in TABLE.items()
    for moment, cell in zip(MOMENTS, row.split(), strict=True)
    if cell != "."
    # What takes nothing, whoever has nothing may do.
    for person in (("nobody", "temporal") if cell.startswith("-") else PEOPLE)
]


def test_the_table_is_of_every_operation() -> None:
    assert TABLE.keys() == OPERATIONS.keys()


def missing(takes: str, who: Principal, moment: str) -> set[str]:
    wanted = {
        "*": COURSE,
        "R": {"runs:control", "runs:respond"},
        "A": {"approve"},
        "-": set(),
    }[takes]
    if who == TEMPORAL and takes != "A":
        wanted = wanted & {"approve"} if moment == "open" else set()
    if takes == "R" and {*who.capabilities} >= COURSE:
        return set()
    return set() if "*" in who.capabilities else wanted - {*who.capabilities}


@pytest.mark.parametrize(("operation", "moment", "cell", "person"), CASES)
def test_an_operation_requires_the_capabilities_of_its_cell(
    operation: str, moment: str, cell: str, person: str
) -> None:
    run, who = at(moment), PEOPLE[person]
    takes, _, why = cell.partition(":")
    lacking = missing(takes, who, moment)
    kind, fields = OPERATIONS[operation](run, who)
    if lacking or why:
        refusal = run.refused(kind, **fields)
        assert refusal.code == ("capability_required" if lacking else CODES[why])
        assert refusal.details.get("capabilities", []) == sorted(lacking)
        assert refusal.details.get("capability", "") == min(lacking, default="")
        assert all(repr(name) in refusal.message for name in lacking)
    else:
        run.feed(kind, **fields)


@pytest.mark.parametrize(
    ("operation", "moment", "doing"),
    [
        ("edit values", "open", "edit the values of the run"),
        ("move a deadline", "open", "edit a deadline of the run"),
        ("pause and go to", "open", "lead the run to 'pay'"),
        ("edit at a look", "static", "edit the values of the run at 'interrupt_before'"),
        ("skip at an error", "error", "skip 'pay'"),
        ("retry", "error", "have 'pay' done again, although it was approved only once"),
    ],
)
def test_a_refusal_says_what_it_is_that_somebody_may_not_do(
    operation: str, moment: str, doing: str
) -> None:
    run = at(moment)
    kind, fields = OPERATIONS[operation](run, PEOPLE["nobody"])
    assert f"You may not {doing}: missing '" in run.refused(kind, **fields).message


# what guards a graph and a run

TO_CFO = Escalation(after=60, requested_capability="cfo")


def guarded(*nodes: Any, **about: Any) -> tuple[str, ...]:
    return chain(*nodes, **about).guarded_by


def test_a_graph_is_guarded_by_all_that_it_can_ask_for() -> None:
    inner = chain(gate("a", capability="inner:a"), name="inner")
    clerk = agent_node("clerk", FunctionNode(id="wire", asks=("tool:wire",)), asks=("hook:a",))
    asks = ask("sure", capability="rule:a")
    later = Terms(escalate=(Escalation(after=60, to=("cfo",)), TO_CFO))

    assert guarded("work", gate("plain")) == ()
    assert guarded(gate("a", capability="a", terms=later)) == ("a", "cfo")
    assert guarded(gate("b", capability="b"), gate("a", capability="a")) == ("a", "b")
    assert guarded(FunctionNode(id="work", asks=("a", "tenant:*:b"))) == ("a", "tenant:*:b")
    assert guarded(nested("sub", chain(nested("deep", inner), name="mid"))) == ("inner:a",)
    assert guarded(clerk) == ("hook:a", "tool:wire")
    assert guarded("work", rules=[rule("sure", "work", asks)]) == ("rule:a",)


def test_a_run_is_guarded_by_what_it_asks_for_too() -> None:
    run = Drive(chain(FunctionNode(id="work", asks=("tenant:*:approve",))))
    assert policy.guarded_by(run.state) == ("tenant:*:approve",)
    run.ask("work", asked("sure", requested_capability="tenant:7:approve"))

    assert policy.guarded_by(run.state) == ("tenant:*:approve", "tenant:7:approve")


def test_only_who_may_do_everything_may_change_what_a_pattern_guards() -> None:
    run = Drive(chain(gate("hello"), FunctionNode(id="work", asks=("tenant:*:approve",))))
    for capabilities, lacking in (
        (("runs:control", "tenant:7:approve"), ("tenant:*:approve",)),
        (("runs:control", "tenant:*:approve"), ("tenant:*:approve",)),
        (("*",), ()),
    ):
        who = Principal(subject="ada", capabilities=capabilities)
        assert policy.missing(run.state, who) == lacking


FINANCE = ReadRights.of({"team": ["finance"], "region": ["de", "at", "de"]})


@pytest.mark.parametrize(
    ("labels", "may"),
    [
        ({"team": "finance", "region": "at", "more": "x"}, True),
        ({"team": "finance", "region": "fr"}, False),
        ({"team": "finance"}, False),
        ({"team": "Finance", "region": "de"}, False),
        ({}, False),
    ],
)
def test_a_run_is_seen_if_each_label_has_one_of_its_values(
    labels: dict[str, str], may: bool
) -> None:
    assert FINANCE.may_read(labels) is may
    assert ALL_RUNS.may_read(labels)
    assert (FINANCE.is_bound, ALL_RUNS.is_bound) == (True, False)


def test_a_new_run_gets_the_labels_that_can_have_one_value_only() -> None:
    assert FINANCE.filled({"x": "y"}) == {"x": "y", "team": "finance"}
    assert FINANCE.filled({"team": "legal"}) == {"team": "legal"}
    assert ALL_RUNS.filled({}) == {}
    assert ReadRights.of({"region": ["at", "de"], "team": ["finance"]}) == FINANCE
