"""Values that people send: their types decide what a run accepts, and in which form it is kept."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from answer_samples import SENT, Bill, Decision, Money, Share
from pydantic import BaseModel, Field, SecretStr, create_model, field_serializer, field_validator
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart

from abeyance import START, Agent, Context, Graph, GraphError, Principal, Refusal, append, tool
from abeyance.core.json import Json
from abeyance.testing import InMemoryRun, run

_CASE = ("type_", "sent", "kept", "rejected")
CASES = pytest.mark.parametrize(_CASE, SENT, ids=str)
REWRITTEN = pytest.mark.parametrize(_CASE, [case for case in SENT if case[1] != case[2]], ids=str)
"""The cases whose type writes something else than was sent: enough where a type is asked again."""


class Log(BaseModel):
    said: str = ""


def with_field(type_: Any) -> type[BaseModel]:
    """Return a state with a field `it` of this type, which may have no value yet."""
    return create_model("State", it=(type_ | None, None), said=(str, ""))


def asking(type_: Any) -> Graph:
    """Return a graph that asks for a field, shows it at a breakpoint, and writes it back from code."""
    graph = Graph("asking", state=with_field(type_), interrupt_before=["keep"])
    graph.interrupt("ask", prompt="What?", answer_to="it")
    graph.node(name="keep")(lambda state: {"it": state.it, "said": repr(state.it)})
    graph.edge(START, "ask")
    graph.edge("ask", "keep")
    return graph


async def refusal_of(trial: InMemoryRun, name: str, answer: Json) -> Refusal:
    with pytest.raises(Refusal) as refused:
        await trial.respond(name, answer)
    return refused.value


def edits_of(trial: InMemoryRun) -> list[Json]:
    return [event.data for event in trial._driver.events if event.type == "run.values_edited"]


@CASES
async def test_a_value_is_kept_as_its_type_writes_it_and_refused_as_its_type_rejects_it(
    type_: Any, sent: Json, kept: Json, rejected: Json
) -> None:
    trial = InMemoryRun(asking(type_))
    await trial.start()
    (asked,) = await trial.interrupts()

    refused = await refusal_of(trial, "ask", rejected)

    assert refused.code == "invalid_answer"
    assert "pydantic" not in refused.message
    assert [each.id for each in await trial.interrupts()] == [asked.id]
    assert trial.values["it"] is None
    await trial.respond("ask", sent)
    assert trial.values["it"] == kept
    (stop,) = await trial.interrupts()
    assert stop.payload["values"]["it"] == kept
    wrong = {"values": {"it": rejected}, "version": stop.payload["version"]}
    assert (await refusal_of(trial, stop.id, wrong)).code == "invalid_answer"
    shown = {"values": stop.payload["values"], "version": stop.payload["version"]}
    await trial.respond(stop.id, shown)
    assert trial.status == "completed"
    assert trial.values["it"] == kept
    assert edits_of(trial) == []


@REWRITTEN
async def test_code_that_asks_gets_what_its_type_accepts_and_nobody_can_answer_with_what_it_rejects(
    type_: Any, sent: Json, kept: Json, rejected: Json
) -> None:
    graph = Graph("code", state=Log)

    @graph.node(name="ask", retries=0)
    async def ask(state: Log, ctx: Context) -> dict[str, Any]:
        answer = await ctx.interrupt("q", prompt="?", response=type_)
        return {"said": f"{ctx.answers['q'] == kept} {answer!r}"}

    graph.edge(START, "ask")
    trial = InMemoryRun(graph)
    await trial.start()

    assert (await refusal_of(trial, "q", rejected)).code == "invalid_answer"
    assert trial.status == "awaiting-input"
    await trial.respond("q", sent)
    assert trial.status == "completed"
    assert trial.values["said"].startswith("True ")


@REWRITTEN
async def test_values_are_edited_in_the_forms_that_their_types_accept(
    type_: Any, sent: Json, kept: Json, rejected: Json
) -> None:
    trial = InMemoryRun(asking(type_))
    await trial.start()

    with pytest.raises(Refusal) as refused:
        await trial.edit_values({"it": rejected})
    for again in (sent, kept):
        await trial.edit_values({"it": again})
        assert trial.values["it"] == kept

    assert refused.value.code == "invalid_input"
    await trial.respond("ask", sent)
    (stop,) = await trial.interrupts()
    edited = {"values": {"it": sent}, "version": stop.payload["version"]}
    await trial.respond(stop.id, edited)
    assert (trial.status, trial.values["it"]) == ("completed", kept)


def gated(type_: Any, sent: Json, **options: Any) -> Graph:
    """Return a graph whose agent calls a tool once, with one argument of this type."""

    async def use(it: Any) -> str:
        return f"used {it!r}"

    use.__annotations__ = {"it": type_, "return": str}

    def play(messages: list[ModelMessage], info: Any) -> ModelResponse:
        for part in messages[-1].parts:
            if isinstance(part, ToolReturnPart):
                return ModelResponse(parts=[TextPart(str(part.content))])
        return ModelResponse(parts=[ToolCallPart("use", {"it": sent}, "c1")])

    desk = create_model("Desk", question=(str, "?"), answer=(str | None, None))
    graph = Graph("desk", state=desk)
    agent = Agent("clerk", model=play, tools=[tool(approve=True, **options)(use)])
    graph.agent("work", agent, input="question", output="answer")
    graph.edge(START, "work")
    return graph


@REWRITTEN
async def test_an_approver_sends_the_arguments_as_shown_or_as_sent_and_none_that_the_tool_rejects(
    type_: Any, sent: Json, kept: Json, rejected: Json
) -> None:
    # An approver who may not edit the arguments may still send them back.
    graph = gated(type_, sent, decisions=["approve", "reject"])
    for again in (kept, sent):
        trial = InMemoryRun(graph)
        await trial.start()
        (asked,) = await trial.interrupts()

        assert asked.reason["arguments"] == {"it": kept}
        await trial.respond(asked.id, {"approved": True, "arguments": {"it": again}})
        assert trial.status == "completed"
    trial = InMemoryRun(gated(type_, sent))
    await trial.start()
    (asked,) = await trial.interrupts()

    wrong = {"approved": True, "arguments": {"it": rejected}}
    refused = await refusal_of(trial, asked.id, wrong)

    assert refused.code == "invalid_answer"
    assert refused.details["errors"][0]["pointer"].startswith("/arguments")
    assert [each.id for each in await trial.interrupts()] == [asked.id]


async def test_an_answer_in_another_form_is_the_same_answer() -> None:
    trial = InMemoryRun(gated(Money, "12.50", quorum=2))
    await trial.start()
    (asked,) = await trial.interrupts()
    ada, bob = (Principal(subject=name, capabilities=("*",)) for name in ("ada", "bob"))
    again = {"approved": True, "arguments": {"it": "12.50"}}
    await trial.respond(asked.id, {"approved": True}, principal=bob)
    await trial.respond(asked.id, again, principal=ada)
    assert trial.values["answer"] == "used Decimal('12.50')"

    trial = InMemoryRun(asking(time))
    await trial.start()
    id_ = (await trial.interrupts())[0].id
    receipts = [*await trial.respond(id_, "10:00"), *await trial.respond(id_, "10:00")]
    assert [each.replayed for each in receipts] == [False, True]
    assert (await refusal_of(trial, id_, "10:01")).code == "already_answered"


async def test_answers_and_defaults_may_be_python_values() -> None:
    bill = Bill(amount=Decimal("7.25"), lines=[Decision(isApproved=True)])
    ended = await run(asking(Bill), answers={"ask": bill, "interrupt_before": None})

    assert ended.values["it"] == {"amount": "7.25", "due": None, "lines": [{"isApproved": True}]}

    late = Graph("late", state=with_field(Money))
    late.interrupt(
        "ask", prompt="?", answer_to="it", timeout="1h", on_timeout={"default": Decimal("5.00")}
    )
    late.edge(START, "ask")

    assert (await run(late)).values["it"] == "5.00"


def test_a_default_that_its_type_rejects_is_a_fault_of_the_graph() -> None:
    graph = Graph("late", state=with_field(Share))
    graph.interrupt(
        "ask", prompt="?", answer_to="it", timeout="1h", on_timeout={"default": {"percent": 3}}
    )
    graph.edge(START, "ask")

    with pytest.raises(GraphError, match="must be even"):
        graph.build()


class Cents(BaseModel):
    cents: int

    @field_validator("cents")
    @classmethod
    def of_euros(cls, value: int) -> int:
        return value * 100


class Told(BaseModel):
    euros: int

    @field_serializer("euros")
    def told(self, value: int) -> str:
        return f"{value} EUR"


@pytest.mark.parametrize(
    ("type_", "sent", "told"),
    [
        (Cents, {"cents": 5}, 'writes {"cents":500}, and reads that as {"cents":50000}'),
        (Told, {"euros": 5}, 'writes {"euros":"5 EUR"}, and does not read that: Input should be'),
    ],
)
async def test_an_answer_that_its_type_would_read_as_another_one_later_is_refused(
    type_: Any, sent: Json, told: str
) -> None:
    async def ask(state: Log, ctx: Context) -> None:
        await ctx.interrupt("ask", prompt="?", response=type_)

    coded = Graph("coded", state=Log)
    coded.node(name="work")(ask)
    coded.edge(START, "work")
    for graph in (coded, asking(type_)):
        trial = InMemoryRun(graph)
        await trial.start()

        refused = await refusal_of(trial, "ask", sent)

        assert refused.code == "invalid_answer"
        assert told in refused.message


class Verdict(BaseModel):
    approved: bool
    note: str = ""


@pytest.mark.parametrize("name", ["arguments", "reason", "remember", "result"])
async def test_fields_of_an_approval_are_refused_for_other_questions(
    name: str,
) -> None:
    answer: Json = {"approved": False, name: "x"}
    trial = InMemoryRun(asking(Verdict))
    await trial.start()

    refused = await refusal_of(trial, "ask", answer)

    assert refused.code == "invalid_answer"
    assert f"/{name}: this question is not an approval of a tool call" in refused.message
    await trial.respond("ask", {"approved": False})
    fields: dict[str, Any] = {"approved": bool, name: str}
    for type_ in (create_model("Own", **fields), dict[str, Any]):
        trial = InMemoryRun(asking(type_))
        await trial.start()
        await trial.respond("ask", answer)
        assert trial.values["it"] == answer


async def test_a_question_for_a_secret_is_a_fault() -> None:
    class Login(BaseModel):
        password: SecretStr

    async def ask(state: Log, ctx: Context) -> None:
        await ctx.interrupt("ask", prompt="?", response=Login)

    coded, declared = Graph("coded", state=Log), Graph("declared", state=Log)
    coded.node(name="work", retries=0)(ask)
    coded.edge(START, "work")
    declared.interrupt("ask", prompt="?", response=Login)
    declared.edge(START, "ask")

    with pytest.raises(GraphError, match="an answer holds a secret"):
        declared.build()
    assert "an answer holds a secret" in ((await run(coded)).reason or "")


async def test_an_answer_that_a_deploy_makes_unreadable_is_asked_again_with_the_fault() -> None:
    class Loose(BaseModel):
        percent: int

    def version(type_: Any, got: list[Any]) -> Graph:
        graph = Graph("deployed", state=Log)

        @graph.node(name="ask", retries=0)
        async def ask(state: Log, ctx: Context) -> dict[str, Any]:
            first = await ctx.interrupt("first", prompt="How much?", response=type_)
            second = await ctx.interrupt("second", prompt="Sure?", response=bool)
            got.append((first, second))
            return {"said": "done"}

        graph.edge(START, "ask")
        return graph

    got: list[Any] = []
    trial = InMemoryRun(version(Loose, got))
    await trial.start()
    before = (await trial.interrupts())[0].id
    await trial.respond("first", {"percent": 3})
    trial.deploy(version(Share, got))

    await trial.respond("second", True)

    (again,) = await trial.interrupts()
    assert (again.name, again.id == before) == ("first", False)
    assert again.prompt == (
        "How much? (Asked again, because the answer does not fit: /percent: must be even)"
    )
    assert (await refusal_of(trial, again.id, {"percent": 3})).code == "invalid_answer"
    await trial.respond(again.id, {"percent": 4})
    assert (trial.status, got) == ("completed", [(Share(percent=4), True)])


async def test_an_answer_that_makes_a_list_too_long_is_refused() -> None:
    class Words(BaseModel):
        said: Annotated[list[str], append, Field(max_length=1)] = []

    graph = Graph("words", state=Words)
    graph.interrupt("one", prompt="?", answer_to="said")
    graph.interrupt("two", prompt="?", answer_to="said")
    graph.edge(START, "one")
    graph.edge("one", "two")
    trial = InMemoryRun(graph)
    await trial.start()
    await trial.respond("one", ["a"])

    refused = await refusal_of(trial, "two", ["b"])

    assert "at most 1 item" in refused.message
    await trial.respond("two", [])
    assert trial.values["said"] == ["a"]


@pytest.mark.parametrize(
    ("response", "field", "kept", "rejected"),
    [
        (int, Annotated[int, Field(ge=0)], 0, -1),
        (str, Literal["y", "n"], "y", "x"),
        ({"type": ["string", "null"]}, str, "x", None),
        (list[Any], list[int], [1], ["x"]),
    ],
)
async def test_an_answer_of_another_type_than_its_field_has_to_fit_both(
    response: Any, field: Any, kept: Json, rejected: Json
) -> None:
    graph = Graph("asking", state=create_model("State", it=(field, kept)))
    graph.interrupt("ask", prompt="What?", response=response, answer_to="it")
    graph.edge(START, "ask")
    trial = InMemoryRun(graph)
    await trial.start()

    assert (await refusal_of(trial, "ask", rejected)).code == "invalid_answer"

    await trial.respond("ask", kept)
    assert (trial.status, trial.values["it"]) == ("completed", kept)


async def test_values_at_a_breakpoint_can_be_sent_back_with_an_edit() -> None:
    class Shop(BaseModel):
        opens: time | None = None
        at: datetime | None = None
        shift: timedelta | None = None
        day: date | None = None
        note: str = ""

    graph = Graph("look", state=Shop, interrupt_before=["last"])
    wrote = {
        "at": datetime(2026, 1, 1, 10),  # noqa: DTZ001 a state may have times without a zone
        "opens": time(10),
        "shift": timedelta(hours=-1),
        "day": date(2026, 1, 1),
    }
    graph.node(name="first")(lambda state: wrote)
    graph.node(name="last")(lambda state: {"note": f"{state.note}!"})
    graph.edge(START, "first")
    graph.edge("first", "last")
    trial = InMemoryRun(graph)
    await trial.start()
    (shown,) = await trial.interrupts()

    edited = {**shown.payload["values"], "note": "seen"}
    await trial.respond(shown.id, {"values": edited, "version": shown.payload["version"]})

    assert trial.values["note"] == "seen!"
    assert [each["fields"] for each in edits_of(trial)] == [["note"]]


@REWRITTEN
async def test_a_failed_visit_is_skipped_with_values_as_their_types_write_them(
    type_: Any, sent: Json, kept: Json, rejected: Json
) -> None:
    graph = Graph("failing", state=with_field(type_), on_error="interrupt")

    @graph.node(name="fail", retries=0)
    async def fail(state: Any) -> None:
        raise RuntimeError("no")

    graph.edge(START, "fail")
    trial = InMemoryRun(graph)
    await trial.start()

    refused = await refusal_of(trial, "error", {"action": "skip", "patch": {"it": rejected}})
    await trial.respond("error", {"action": "skip", "patch": {"it": sent}})

    assert refused.code == "invalid_answer"
    assert refused.details["errors"][0]["pointer"].startswith("/patch/it")
    assert (trial.status, trial.values["it"]) == ("completed", kept)
