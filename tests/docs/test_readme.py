"""The examples of the README work, and the tests that promises.md names exist."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from dev_stack import Place
from foreign_office import Office, openai_model
from pages import blocks as blocks_of
from pages import read
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo
from stack import openapi_document
from temporal_site import Site
from temporalio.client import Client as TemporalClient

from abeyance import Graph, Principal, testing

_ROOT = Path(__file__).parents[2]
_README = (_ROOT / "README.md").read_text(encoding="utf-8")
_CLERK = Principal(subject="clerk", capabilities=("refunds:approve",))


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", _README, re.DOTALL)


GRAPH, TEST, AGENT, BROUGHT = blocks("python")
INSTALL, MAKE, SERVE, SESSION = blocks("console")
START_PAGE = "get-started.md"


def graph_of(source: str, **names: Any) -> Graph:
    module = types.ModuleType("refunds")
    module.__dict__.update(names)
    # Python looks up the annotations of the graph's code there.
    sys.modules["refunds"] = module
    exec(compile(source, "README.md", "exec", dont_inherit=True), module.__dict__)
    found: Graph = module.__dict__["graph"]
    return found


@pytest.fixture
def place(tmp_path: Path) -> Place:
    (tmp_path / "refunds.py").write_text(GRAPH)
    return Place(tmp_path)


async def test_the_smallest_agent_asks_about_a_large_refund_and_takes_another_amount() -> None:
    def script(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        given = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
        if given:
            return ModelResponse(parts=[TextPart(f"We have {given[0].content}.")])
        return ModelResponse(parts=[ToolCallPart("refund", {"order_id": "A-7", "amount": 250})])

    model = 'model="openai:gpt-5"'
    assert model in AGENT
    graph = graph_of(AGENT.replace(model, "model=script"), script=script)
    run = testing.InMemoryRun(graph, {"letter": "My order A-7 never came."})
    await run.start()
    assert (await run.interrupts())[0].kind == "approval"
    edited = {"approved": True, "arguments": {"order_id": "A-7", "amount": 90}}
    await run.respond("approve", edited, principal=_CLERK)

    assert run.values["reply"] == "We have paid 90 back for A-7."


async def test_an_agent_of_another_framework_asks_before_it_acts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Every test process imports this module, and the SDK takes a third of a second to import.
    import agents

    @agents.function_tool(needs_approval=True)
    def refund(order: str, amount: float) -> str:
        return f"paid {amount:g} back for order {order}"

    office = Office([("c1", "refund", {"order": "A-7", "amount": 250})], "It is paid back.")
    letters = types.ModuleType("letters")
    letters.__dict__["clerk"] = agents.Agent(
        name="clerk", model=openai_model(office), tools=[refund]
    )
    monkeypatch.setitem(sys.modules, "letters", letters)
    run = testing.InMemoryRun(graph_of(BROUGHT), {"letter": "My order A-7 never came."})
    await run.start()
    (asked,) = await run.interrupts()
    assert asked.kind == "approval"
    assert asked.reason == {"tool": "refund", "arguments": {"order": "A-7", "amount": 250}}
    await run.respond(asked.id, {"approved": True}, principal=_CLERK)

    assert run.values["reply"] == "It is paid back."


async def test_a_run_that_waits_goes_on_by_the_graph_it_was_started_with(
    temporal: TemporalClient,
) -> None:
    way = '"pay", when={"approved": True}'
    assert way in GRAPH
    changed = graph_of(GRAPH.replace(way, '"pay", when={"approved": False}'))
    site = Site(temporal, graph_of(GRAPH))
    async with site.worker():
        run_id = await site.start({"order_id": "A-7", "amount": 250})
        await site.until(run_id, "awaiting-input")
    async with site.worker(changed):
        await site.client.run(run_id).respond(response=True, principal=_CLERK)
        ended = await site.ended(run_id)

    assert (ended.status, ended.values["receipt"]) == ("completed", "paid 250 for order A-7")


def test_its_test_of_the_graph_passes_without_a_server(place: Place) -> None:
    (place.folder / "try_it.py").write_text(TEST)

    done = place.python("try_it.py")

    assert (done.returncode, done.stderr) == (0, "")


def test_the_make_targets_of_the_readme_exist() -> None:
    makefile = (_ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^make (\w+)", MAKE, re.MULTILINE)

    assert targets == ["demo", "test"]
    for target in [*targets, *re.findall(r"`make (\w+)", _README)]:
        assert f"\n{target}:" in makefile


def test_every_call_that_it_names_is_one_of_the_api() -> None:
    calls = {
        f"{method.upper()} {path}"
        for path, methods in openapi_document()["paths"].items()
        for method in methods
    }
    named = {*re.findall(r"`((?:GET|POST|PATCH|DELETE) [^`]+)`", _README)}

    assert len(named) > 4
    assert named <= calls | {"GET /openapi.json"}


def test_every_promise_names_a_test_that_is_there() -> None:
    proofs = re.findall(
        r"\| `(tests/[\w/]+\.py)` \| `(\w+)` \|$", read("concepts/promises.md"), re.MULTILINE
    )

    assert len(proofs) > 15
    for path, name in proofs:
        assert f"def test_{name}(" in (_ROOT / path).read_text(encoding="utf-8"), (path, name)


def test_the_front_page_begins_with_the_same_graph() -> None:
    first = read("index.md").partition("```")[2].partition("```")[0]

    assert first == f"python\n{GRAPH}"


def test_the_first_page_shows_the_same_graph_and_the_same_commands() -> None:
    typed = [block.text for block in blocks_of(START_PAGE, "console")]

    assert blocks_of(START_PAGE, "python")[0].text == GRAPH
    assert {INSTALL, SERVE, SESSION} < {*typed}


def test_the_readme_can_be_read_in_ten_minutes() -> None:
    assert len(_README.splitlines()) < 250
