"""The current details of a run, which Temporal's UI shows to an operator."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any, Literal

import pytest
from core_agents import gated, reviewing, turn
from core_drive import Drive, gate, graph
from pydantic import BaseModel

from abeyance import wire
from abeyance.core.spec import START, Default, GoTo
from abeyance.core.terms import Escalation, Terms
from abeyance.workflows import visibility
from abeyance.workflows.details import code, details, form

CALL = {"tool": "pay", "arguments": {"amount": 5}}
START_RUN = wire.StartRun(run_id="r")


def asking(*gates: Any) -> Drive:
    return Drive(graph(*gates, ways=[(START, each.id) for each in gates]))


def of(*gates: Any) -> str:
    return details(asking(*gates).state, START_RUN)


def test_the_details_say_what_a_run_waits_for_and_how_to_answer() -> None:
    decision = {
        "type": "object",
        "properties": {"approved": {"type": "boolean"}, "note": {"type": "string"}},
        "required": ["approved"],
    }
    run = asking(
        gate("ask", prompt="Go on?\nReally?", timeout=60, on_timeout=GoTo(node="pay")),
        gate("pay", prompt="Pay?", capability="pay", schema=decision),
    )
    text = details(run.state, START_RUN)

    assert text.startswith("**awaiting-input**\n\nWaits for 2 answers:\n\n### 1. `ask`")
    assert "> `Go on?`\n>\n> `Really?`\n\n" in text
    assert "- asked at `graph:g;node:ask`\n" in text
    assert "- until 2026-03-02 09:01:00 UTC, then the run goes to `pay`" in text
    assert (
        f"""To answer, send the update `respond` with

`{{"interrupt_id": "{run.open("ask").id}", "response": any JSON}}`"""
        in text
    )
    assert "### 2. `pay`\n\n> `Pay?`" in text
    assert "- without a deadline\n- asks for the capability `pay`" in text
    assert (
        f"""answer through the API, `POST /runs/r/respond`, with

`{{"interrupt_id": "{run.open("pay").id}", "response": {{"approved": boolean, "note"?: string}}}}`"""
        in text
    )


@pytest.mark.parametrize("prompt", ["x" * 2_000, "line\n" * 30])
def test_a_long_prompt_is_cut_and_says_so(prompt: str) -> None:
    text = of(gate("ask", prompt=prompt))

    assert "- more than is shown here: see the inbox\n" in text
    assert len(text) < 2_000
    assert "more than is shown" not in of(gate("ask", prompt="Go on?\nReally?"))


def test_the_details_say_who_started_a_run_and_how_to_stop_it() -> None:
    run = asking(gate("ask"))
    start = START_RUN.model_copy(
        update={"started_by": "ada", "labels": {"b": "2", "a": "1"}, "conversation_id": "c*1*"}
    )

    assert details(run.state, start).endswith(
        "Started by `ada`, conversation `c*1*`, labels `a=1, b=2`.\n\n"
        "Signals, without an argument: `pause` stops it for a while, `cancel` ends it gracefully."
    )


def test_a_default_answer_is_shown_to_nobody() -> None:
    text = of(gate("ask", timeout=60, on_timeout=Default(answer={"secret": 1})))

    assert "then a default answer counts" in text
    assert "secret" not in text


def test_a_paused_run_says_who_and_why_and_how_it_goes_on() -> None:
    run = Drive(graph("n", ways=[(START, "n")]))
    run.pause(reason="*lunch*", timeout=60)
    paused = details(run.state, START_RUN)

    assert paused.startswith(
        "**paused** by `ada` since 2026-03-02 09:00:00 UTC: `*lunch*`; "
        "until 2026-03-02 09:01:00 UTC, then the run goes on\n\n"
    )
    assert "send the signal `resume` (no argument)." in paused
    assert "Running: `graph:g;node:n`" in paused
    assert "`pause` stops" not in paused


def test_an_ended_run_says_why_and_offers_nothing() -> None:
    run = Drive(graph("n", ways=[(START, "n")]))
    run.cancel(mode="now", reason="wrong [order](https://example.com)")
    text = details(run.state, START_RUN)

    assert text == (
        "**cancelled**: `wrong [order](https://example.com)`, by `bob`\n\nStarted by `temporal`."
    )


def test_a_failed_run_says_where() -> None:
    run = Drive(graph("n", ways=[(START, "n")]))
    run.fail("n", message="no *bank*")
    text = details(run.state, START_RUN)

    assert text.startswith("**failed** at `graph:g;node:n`: `no *bank*`")


def test_the_details_stay_short_and_say_that_there_is_more() -> None:
    gates = [gate(f"g{number}", prompt="x" * 5_000) for number in range(60)]
    text = of(*gates)

    assert "... and 50 more: see the inbox." in text
    assert len(text.encode()) < 20_000


@pytest.mark.parametrize(
    "prompt",
    [
        "`code`",
        "[link](https://example.com) ![image](https://example.com/a.png)",
        "# title\n\n- item\n\n| a |\n|---|",
        "a\u2028b\u2029c\x0bd\x85e\r\nf",
        "\x1b[31mred\x00",
        "paid to \u202eecila\u202c \u2066x\u2069",
        "`",
    ],
)
def test_details_show_texts_as_code_spans_without_markup(prompt: str) -> None:
    first = of(gate("ask", prompt=prompt)).split("\n\n")[3]
    shown = [line.removeprefix("> ") for line in first.split("\n") if line != ">"]

    assert shown
    assert all(re.fullmatch(r"`[^`\n]+`", line) for line in shown)
    assert not re.search(
        "[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]", first
    )
    for word in re.findall("[a-z]{4,}", prompt):
        assert word in first


def test_a_property_name_cannot_leave_its_code_span() -> None:
    schema = {"type": "object", "properties": {"`<b>`\n\u202e": {"type": "string"}}}
    text = of(gate("ask", schema=schema))

    (line,) = [line for line in text.split("\n") if "interrupt_id" in line]
    assert re.fullmatch(r"`[^`]+`", line)
    assert "<b>" in line
    assert "\u202e" not in text


def test_a_code_span_is_cut() -> None:
    assert len(code("x" * 10_000)) == 302
    assert [code(text) for text in (None, "", " \n ")] == ["(nothing)"] * 3


def approving(prompt: str = "Pay?", capability: str | None = None) -> str:
    run = asking(gate("approve", prompt=prompt, capability=capability))
    (entry,) = run.state.ledger.open.values()
    call = {"tool": "transfer", "arguments": {"to": "`ada`", "amount": 5}}
    run.state.ledger.open[entry.id] = replace(entry, kind="approval", reason=call)
    return details(run.state, START_RUN)


def test_an_approval_shows_the_call_and_an_answer_to_copy() -> None:
    text = approving()
    body = re.search(r"^`(.*true.*)`$", text, re.MULTILINE)

    assert """- about the tool `transfer` with `{"amount":5,"to":"'ada'"}`""" in text
    assert body is not None
    assert json.loads(body[1])["response"] == {"approved": True}
    assert "To approve, send the update `respond` with\n\n" in text
    assert '"response": {"approved": false, "reason": "..."}}`' in text
    assert "so approve through the API" in approving(capability="pay")
    assert "about the tool" not in approving('Run {"amount":5,"to":"`ada`"}?')


def test_the_details_say_when_people_are_reminded_and_who_may_answer_later() -> None:
    ask = gate("ask", timeout=7200)
    terms = Terms(
        remind=(600.0, -1800.0),
        escalate=(
            Escalation(after=3600.0, to=("group:directors",), requested_capability="direct"),
        ),
    )
    text = of(replace(ask, question=replace(ask.question, terms=terms)))

    assert "- reminds at 2026-03-02 09:10:00 UTC, 2026-03-02 10:30:00 UTC\n" in text
    assert (
        "- from 2026-03-02 10:00:00 UTC on also for `group:directors`, the capability `direct`"
        in text
    )


def test_the_details_name_the_decisions_that_an_approval_allows() -> None:
    run = reviewing()
    turn(run, gated("c1", reason=CALL, terms=Terms(decisions=("reject", "respond"))))
    text = details(run.state, START_RUN)

    assert "To reject, send the update `respond` with" in text
    assert "and to answer in its place, with" in text
    assert '"response": {"approved": true}' not in text
    assert "; decisions: reject, respond" in text


def test_the_details_show_the_preview_of_a_call() -> None:
    run = reviewing()
    turn(run, gated("c1", reason=CALL, preview={"summary": "7 would be left"}))

    assert "- a preview of the call: `7 would be left`\n" in details(run.state, START_RUN)


# The form of an answer, in one line


class Address(BaseModel):
    street: str
    number: int | None = None


class Verdict(BaseModel):
    approved: bool
    grade: Literal["good", "bad"]
    send_to: Address | None = None
    tags: list[str] = []


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        (None, "any JSON"),
        ({}, "any JSON"),
        ({"type": "boolean"}, "boolean"),
        ({"type": "object"}, "object"),
        ({"type": ["string", "null"]}, "string or null"),
        ({"const": "yes"}, '"yes"'),
        ({"enum": ["a", 1, None]}, '"a" or 1 or null'),
        ({"type": "array", "items": {"type": "integer"}}, "[integer, ...]"),
        ({"$ref": "#/$defs/none"}, "any JSON"),
        ({"enum": list(range(20))}, "0 or 1 or 2 or 3 or 4 or 5 or 6 or 7 or ..."),
    ],
)
def test_a_schema_is_shown_in_words(schema: Any, shown: str) -> None:
    assert form(schema) == shown


def test_a_model_is_shown_with_its_optional_fields() -> None:
    assert form(Verdict.model_json_schema()) == (
        '{"approved": boolean, "grade": "good" or "bad", '
        '"send_to"?: {"street": string, "number"?: integer or null} or null, '
        '"tags"?: [string, ...]}'
    )


def test_a_schema_that_contains_itself_ends_somewhere() -> None:
    schema = {"type": "object", "properties": {"next": {"$ref": "#"}}}

    assert form(schema) == '{"next"?: {"next"?: {"next"?: {"next"?: object}}}}'


def test_an_object_of_many_fields_is_cut() -> None:
    fields = {f"f{number}": {"type": "string"} for number in range(12)}

    assert form({"type": "object", "properties": fields}).endswith('"f7"?: string, ...}')


def test_a_timer_says_what_it_is_for() -> None:
    goto = asking(gate("a", timeout=60), gate("b", timeout=30, on_timeout=GoTo(node="a")))
    default = asking(gate("c", timeout=30, on_timeout=Default(answer={"secret": 1})))
    paused = Drive(graph("n", ways=[(START, "n")]))
    paused.pause(timeout=60)
    ending = Drive(graph("n", ways=[(START, "n")]))
    ending.cancel()

    assert visibility.timer_summary(goto.state) == "deadline of b: goto:a"
    assert visibility.timer_summary(default.state) == "deadline of c: default"
    assert visibility.timer_summary(paused.state) == "deadline of the pause"
    assert visibility.timer_summary(ending.state) == "grace of the ending"
