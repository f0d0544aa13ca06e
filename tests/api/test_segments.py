"""The parts of a segment, made from events and the data that was read about them. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from abeyance import views
from abeyance.agents.transcript_view import TranscriptCall, TranscriptItem
from abeyance.contrib.agui import routes as agui
from abeyance.contrib.ai_sdk.routes import ChunkWriter, posted_by
from abeyance.contrib.talk.parts import (
    Call,
    Ended,
    Notice,
    Opened,
    Part,
    Result,
    StepBegan,
    StepEnded,
    SubagentBegan,
    SubagentEnded,
    TextBegan,
    TextDelta,
    TextEnded,
    Turn,
    Waiting,
)
from abeyance.contrib.talk.posted import Answer, one_each
from abeyance.contrib.talk.segments import Found, Segment, message_id
from abeyance.contrib.talk.threads import Said
from abeyance.errors import Refusal

NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)
CLERK = "graph:g;node:pay;agent:clerk"
HELPER = f"{CLERK};tool:helper:c9;agent:helper"


def event(type_: str, address: str | None = None, **data: Any) -> views.Event:
    return views.Event(id="1", time=NOW, type=type_, run_id="r", address=address, data=data)


def view(status: str, **fields: Any) -> views.RunView:
    ended = NOW if status in {"completed", "failed", "halted", "cancelled"} else None
    about = {"run_id": "r", "graph": "g", "graph_version": "1", "status": status}
    return views.RunView(**about, created_at=NOW, updated_at=NOW, ended_at=ended, **fields)


def question(kind: str = "question", **fields: Any) -> views.InterruptView:
    about: dict[str, Any] = {
        "id": "r.1",
        "run_id": "r",
        "graph": "g",
        "name": "ask",
        "kind": kind,
        "address": f"{CLERK};tool:pay:c1",
        "prompt": "Pay?",
        "created_at": NOW,
        "status": "open",
    }
    return views.InterruptView(**{**about, **fields})


def response(turn: int, text: str = "", *calls: str) -> TranscriptItem:
    made = tuple(TranscriptCall(call_id=id_, tool="pay", arguments={"n": 1}) for id_ in calls)
    return TranscriptItem(role="assistant", turn=turn, text=text or None, calls=made)


def result(turn: int, call_id: str, value: Any, outcome: str = "success") -> TranscriptItem:
    return TranscriptItem(
        role="tool", turn=turn, call_id=call_id, tool="pay", result=value, outcome=outcome
    )


def turn(number: int, *calls: str, agent: str = CLERK) -> views.Event:
    usage = {"requests": 1, "input_tokens": 10, "output_tokens": 2}
    about = {"turn": number, "model": "m", "calls": [*calls], "usage": usage}
    return event("model.turn", f"{agent};node:model", **about)


def kinds(parts: list[Part]) -> list[type[Part]]:
    return [type(part) for part in parts]


TEXT: list[type[Part]] = [TextBegan, TextDelta, TextEnded]


def spoken(parts: list[Part]) -> list[tuple[str, str]]:
    """Return the texts of messages, numbered in the order in which they begin."""
    texts: dict[str, str] = {}
    open_: set[str] = set()
    for part in parts:
        match part:
            case TextBegan(id=id_):
                assert id_ not in texts
                texts[id_] = ""
                open_.add(id_)
            case TextDelta(id=id_, text=text):
                assert id_ in open_
                texts[id_] += text
            case TextEnded(id=id_):
                open_.remove(id_)
            case _:
                pass
    return [(str(number), text) for number, text in enumerate(texts.values(), start=1)]


def delta(text: str, offset: int = 0, number: int = 1, agent: str = CLERK) -> views.ModelDelta:
    new = views.NewText(turn=number, offset=offset, text=text)
    return views.ModelDelta(time=NOW, run_id="r", address=f"{agent};node:model", data=new)


def test_a_message_that_no_visit_took_is_a_notice() -> None:
    left = event("message.undelivered", message_id="m2", reason="completed")
    (notice,) = Segment(run_id="r").on(left, Found())

    assert notice == Notice(
        name="abeyance",
        value={"status": "undelivered", "message_id": "m2", "reason": "completed"},
    )


def test_a_node_and_a_turn_are_steps_that_end_before_the_segment_does() -> None:
    segment = Segment(run_id="r")
    parts = [
        *segment.on(event("node.started", "graph:g;node:look:2"), Found()),
        *segment.on(event("node.started", "graph:g;node:look:2"), Found()),
        *segment.on(event("node.started", f"{CLERK};node:model:3"), Found()),
        *segment.on(event("node.finished", f"{CLERK};node:model:3"), Found()),
        *segment.on(event("run.completed"), Found()),
        *segment.closed(view("completed"), []),
    ]

    assert parts[:4] == [
        StepBegan(name="look:2"),
        StepBegan(name="pay/clerk"),
        StepEnded(name="pay/clerk"),
        StepEnded(name="look:2"),
    ]
    assert (kinds(parts[4:]), segment.is_over) == ([Ended], True)


def test_a_turn_has_its_text_and_calls_and_the_results_that_no_event_has() -> None:
    segment = Segment(run_id="r")
    items = [
        response(1, "one", "c1", "c2"),
        result(2, "c1", 5),
        result(2, "c2", "no", "denied"),
        response(2, "two"),
    ]
    first = segment.on(turn(1, "pay", "pay"), Found(items=items))
    called = event("tool.finished", f"{CLERK};tool:pay:c1", outcome="success")
    told = segment.on(called, Found(items=items, result=("success", 5)))
    again = segment.on(called, Found(items=items, result=("success", 5)))
    second = segment.on(turn(2), Found(items=items))

    assert spoken(first) == [("1", "one")]
    assert kinds(first) == [*TEXT, Turn]
    (done,) = told
    assert isinstance(done, Result)
    assert (done.call_id, done.content) == ("c1", 5)
    assert done.call == Call(id="c1", tool="pay", arguments={"n": 1})
    assert again == []
    assert kinds(second) == [Result, *TEXT, Turn]
    assert [each.status for each in second if isinstance(each, Result)] == ["denied"]


def test_streamed_text_and_the_end_of_the_turn_are_one_message() -> None:
    segment = Segment(run_id="r")
    heard = [*segment.hear(delta("The let")), *segment.hear(delta("ter is", 7))]
    # A watcher that connects again gets the whole text so far.
    heard += segment.hear(delta("The letter is on"))
    ended = segment.on(
        turn(1, "pay"), Found(items=[response(1, "The letter is on its way.", "c1")])
    )

    assert kinds(heard) == [TextBegan, TextDelta, TextDelta, TextDelta]
    assert kinds(ended) == [TextDelta, TextEnded, Turn]
    assert spoken([*heard, *ended]) == [("1", "The letter is on its way.")]
    assert len({part.id for part in [*heard, *ended] if isinstance(part, TextDelta | Turn)}) == 1
    (anew,) = [part.id for part in segment.hear(delta("Next", 0, 2)) if isinstance(part, TextDelta)]
    assert anew == message_id("r", CLERK, 2)


def test_a_turn_that_begins_anew_is_another_message() -> None:
    segment = Segment(run_id="r")
    said = [*segment.hear(delta("The let")), *segment.hear(delta(""))]
    said += [*segment.hear(delta("My")), *segment.hear(delta("Your"))]
    said += segment.on(turn(1), Found(items=[response(1, "Your letter")]))

    assert spoken(said) == [("1", "The let"), ("2", "My"), ("3", "Your letter")]
    assert isinstance(said[-1], Turn)
    assert said[-1].id == message_id("r", CLERK, 1, 2)


def test_a_text_of_which_something_was_missed_comes_at_the_end_of_its_turn() -> None:
    segment = Segment(run_id="r")
    late = [*segment.hear(delta("its way", 900)), *segment.hear(delta("The"))]
    late += [*segment.hear(delta("on its way", 40)), *segment.hear(delta(".", 50))]

    assert spoken(late) == [("1", "The")]
    ended = segment.on(turn(1), Found(items=[response(1, "The letter is on its way.")]))
    assert spoken([*late, *ended]) == [("1", "The letter is on its way.")]


def test_a_text_ends_with_its_turn_whatever_becomes_of_it() -> None:
    ends = [
        event("node.stopped", f"{CLERK};node:model"),
        event("node.failed", f"{CLERK};node:model", code="x", message="no"),
        event("node.retrying", f"{CLERK};node:model"),
        turn(1),
    ]
    for each in ends:
        segment = Segment(run_id="r")
        segment.hear(delta("The let"))
        assert kinds(segment.on(each, Found())) == [TextEnded], each.type
    segment = Segment(run_id="r")
    segment.hear(delta("The let"))
    assert kinds(segment.closed(view("cancelled"), [])) == [TextEnded, Ended]
    assert Segment(run_id="r").hear(delta("no agent's", agent="graph:g")) == []


def test_a_step_of_the_ai_sdk_lasts_while_somebody_still_speaks() -> None:
    segment, writer = Segment(run_id="r"), ChunkWriter()
    told = [*segment.hear(delta("a")), *segment.hear(delta("b", agent=HELPER))]
    told += segment.on(turn(1, "pay"), Found(items=[response(1, "a", "c1")]))
    told += segment.on(turn(1, agent=HELPER), Found(items=[response(1, "b")]))
    types = [chunk["type"] for part in told for chunk in writer.write(part)]

    assert types == [
        *("start-step", "text-start", "text-delta", "text-start", "text-delta"),
        *("text-end", "tool-input-available", "text-end"),
    ]


def test_a_result_before_the_segment_is_not_sent_again() -> None:
    segment = Segment(run_id="r")
    segment.skip(event("tool.finished", f"{CLERK};tool:pay:c1", outcome="success"))

    found = Found(items=[result(2, "c1", 5), response(2, "x")])

    assert kinds(segment.on(turn(2), found)) == [*TEXT, Turn]


def test_a_call_whose_result_cannot_be_read_has_the_outcome_of_its_event() -> None:
    finished = event("tool.finished", f"{CLERK};tool:pay:c1", outcome="denied")
    failed = event("tool.failed", f"{CLERK};tool:pay:c2", code="x", message="no way")
    segment = Segment(run_id="r")
    found = [part for each in (finished, failed) for part in segment.on(each, Found())]

    assert [(each.status, each.content) for each in found if isinstance(each, Result)] == [
        ("denied", None),
        ("failed", "no way"),
    ]


def test_a_subagent_begins_with_its_first_event_and_ends_with_its_last_turn() -> None:
    segment = Segment(run_id="r")
    begun = segment.on(event("node.started", f"{HELPER};node:model"), Found())
    ended = segment.on(turn(1, agent=HELPER), Found(items=[response(1, "helped")]))

    (began,) = begun
    assert isinstance(began, SubagentBegan)
    assert (began.agent.name, began.agent.call_id, began.agent.parent) == ("helper", "c9", None)
    assert kinds(ended) == [*TEXT, Turn, SubagentEnded]
    assert {each.subagent for each in ended if isinstance(each, TextDelta | Turn)} == {HELPER}


def test_a_segment_ends_where_somebody_can_answer() -> None:
    held, child = question(status="held"), question(is_root_cause=False)
    waits = view("awaiting-input")

    def parts(status: str, *interrupts: views.InterruptView) -> list[Part]:
        return Segment(run_id="r").closed(view(status), interrupts)

    assert [parts(status, question()) for status in ("running", "paused")] == [[], []]
    assert parts("awaiting-input", held, child) == [
        Notice(name="abeyance", value={"status": "held"})
    ]
    assert parts("awaiting-input", question(), held) == [
        Waiting(view=waits, interrupts=(question(),))
    ]


def test_a_question_that_opens_while_others_work_is_shown_at_once() -> None:
    opened = event("interrupt.opened", id="r.1")
    asked = Found(interrupts=[question(), question(id="r.2")])

    assert Segment(run_id="r").on(opened, asked) == [Opened(interrupts=(question(),))]
    assert Segment(run_id="r").on(opened, Found()) == []


def test_a_run_that_stands_still_says_why() -> None:
    pause = views.PauseView(
        since=NOW, actor="ada", reason="lunch", mode="now", deadline=None, on_timeout="resume"
    )
    blocked = views.BlockedView(code="code_missing", message="deploy it")
    still = view("paused", pause=pause, blocked=[blocked])
    parts = Segment(run_id="r").opened(still)
    later = Segment(run_id="r").on(event("node.blocked", "graph:g;node:a", code="x"), Found())

    assert [each.value for each in [*parts, *later] if isinstance(each, Notice)] == [
        {"status": "paused", "reason": "lunch", "by": "ada"},
        {"status": "blocked", "code": "code_missing", "message": "deploy it"},
        {"status": "blocked", "code": "x", "address": "graph:g;node:a"},
    ]


def test_an_emitted_event_is_a_notice() -> None:
    emitted = event("user.charged", "graph:g;node:a", data={"euros": 7})

    assert Segment(run_id="r").on(emitted, Found()) == [
        Notice(name="user.charged", value={"euros": 7})
    ]


# The protocol AG-UI


@pytest.mark.parametrize("kind", ["question", "budget"])
def test_a_question_that_is_not_an_approval_takes_its_payload_as_answer(kind: str) -> None:
    asked = question(kind, address="graph:g;node:a", response_schema={"type": "integer"})
    shown = agui.interrupt_of(asked)

    assert (shown.reason, shown.tool_call_id) == ("input_required", None)
    assert shown.response_schema == {"type": "integer"}
    assert agui.value_of("resolved", 7, asked) == 7
    assert agui.value_of("cancelled", 7, asked) is ...


def test_an_approval_takes_the_names_of_the_protocol_and_our_own() -> None:
    asked = question("approval", response_schema=None)
    edits = {"approved": True, "editedArgs": {"n": 2}, "reason": ""}

    assert agui.value_of("resolved", edits, asked) == {"approved": True, "arguments": {"n": 2}}
    assert agui.value_of("resolved", {"approved": False, "reason": "no"}, asked) == {
        "approved": False,
        "reason": "no",
    }
    assert agui.value_of("cancelled", None, asked) == {"approved": False}
    assert agui.value_of("resolved", True, asked) is True
    assert agui.schema_of(asked) is None


def test_a_cancelled_a_halted_and_a_failed_run_end_differently() -> None:
    failed = view("failed", error=views.ErrorView(code="node_failed", message="on fire"))
    halted = view("halted", reason="too late")
    ends = [Ended(view=each) for each in (view("cancelled"), halted, failed)]
    first, second, third = [
        [*agui.events_of(part, thread_id="t", segment_id="1")][-1].model_dump(by_alias=True)
        for part in ends
    ]

    assert first["outcome"] == {"type": "cancelled"}
    assert (second["code"], second["message"]) == ("halted", "too late")
    assert (third["type"], third["code"], third["message"]) == (
        "RUN_ERROR",
        "node_failed",
        "on fire",
    )


def test_messages_of_several_agents_come_by_their_time() -> None:
    def said(role: Any, minute: int, text: str, turn: int = 1) -> TranscriptItem:
        return TranscriptItem(role=role, turn=turn, text=text, at=NOW.replace(minute=minute))

    clerk = [said("user", 0, "pay"), said("system", 0, "s"), said("assistant", 1, "a")]
    helper = [said("user", 2, "task"), said("assistant", 3, "h")]
    told = Said(
        transcripts={CLERK: [*clerk, said("assistant", 4, "z", 2)], HELPER: helper},
        results={CLERK: {"c1": {"content": 5}}},
    )
    messages = agui.messages_of("r", told, first="m1")

    assert [each.content for each in messages] == ["pay", "a", "h", "z", "5"]
    assert messages[0].id == "m1"
    assert messages[2].subagent_run_id == HELPER


# The protocol of the AI SDK


def written(*parts: Part, calls: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    writer = ChunkWriter(calls={*calls})
    return [chunk for part in parts for chunk in writer.write(part)]


def test_a_result_of_a_call_that_the_message_lacks_comes_with_the_call() -> None:
    done = Result(
        id="m",
        call_id="c1",
        tool="pay",
        status="failed",
        content="no",
        call=Call(id="c1", tool="pay", arguments={"n": 1}),
    )

    assert written(done, calls=("c1",)) == [
        {"type": "tool-output-error", "toolCallId": "c1", "errorText": "no"}
    ]
    assert written(done)[0] == {
        "type": "tool-input-available",
        "toolCallId": "c1",
        "toolName": "pay",
        "input": {"n": 1},
    }


def test_an_open_approval_is_asked_again_at_the_end_under_the_same_id() -> None:
    asked = question("approval", digest="d", reason={"tool": "pay", "arguments": {"n": 1}})
    chunks = written(
        Opened(interrupts=(asked,)), Waiting(view=view("awaiting-input"), interrupts=(asked,))
    )

    assert [chunk["type"] for chunk in chunks] == [
        *("tool-input-available", "tool-approval-request", "tool-approval-request", "finish")
    ]
    assert chunks[1] == {
        "type": "tool-approval-request",
        "approvalId": "r.1#d",
        "toolCallId": "c1",
    }


def test_answers_before_the_last_step_are_history() -> None:
    begin = {"type": "step-start"}
    ask = {"type": "dynamic-tool", "toolName": "ask", "state": "output-available", "output": 1}
    parts = [begin, {**ask, "toolCallId": "r.1#d"}, begin, {**ask, "toolCallId": "r.2"}, "odd"]
    posted = posted_by("t", [{"role": "assistant", "parts": parts}])

    assert [(each.interrupt_id, each.digest, each.is_history) for each in posted.answers] == [
        ("r.1", "d", True),
        ("r.2", None, False),
    ]


def test_the_last_answer_counts_if_the_others_are_history() -> None:
    def answered(id_: str, *, before: bool = False) -> Answer:
        return Answer(interrupt_id=id_, value=lambda _asked: 1, digest="d", is_history=before)

    old, older, new = answered("r.1", before=True), answered("r.1", before=True), answered("r.1")

    assert one_each([older, old, answered("r.2"), new])[0] is new
    with pytest.raises(Refusal, match=r"'r\.1' twice"):
        one_each([old, new, answered("r.2"), answered("r.1")])


def test_a_run_that_failed_is_an_error_with_its_code() -> None:
    failed = view("failed", error=views.ErrorView(code="node_failed", message="on fire"))
    chunks = written(Ended(view=failed))

    assert [chunk["type"] for chunk in chunks] == ["data-abeyance", "error", "finish"]
    assert chunks[1]["errorText"] == "node_failed: on fire"
    assert written(Ended(view=view("cancelled")))[-1]["finishReason"] == "other"


def test_a_notice_is_written_as_data() -> None:
    notices = [Notice(name="abeyance", value={"status": "paused"}), Notice(name="user.x", value=1)]

    assert written(*notices) == [
        {"type": "data-abeyance", "data": {"status": "paused"}, "transient": True},
        {"type": "data-abeyance", "data": {"event": "user.x", "data": 1}},
    ]
    assert written(StepBegan(name="a"), StepEnded(name="a")) == []
