"""Each agent on docs/how-to/bring-your-agent.md asks for its approval, and goes on with the answer."""

from __future__ import annotations

import importlib.metadata
import re
import sys
import types
from typing import Any

import pytest
from foreign_office import (
    Office,
    agent_framework_client,
    google_adk_model,
    langgraph_model,
    openai_model,
    strands_model,
)
from pages import Block, blocks, read

from abeyance.testing import InMemoryRun

PAGE = "how-to/bring-your-agent.md"
TITLED = [block for block in blocks(PAGE, "python") if block.options]
(MINE,) = [block for block in TITLED if "my_agents.py" in block.options]
FILES = [block for block in TITLED if block is not MINE]
(RULES,) = [block for block in blocks(PAGE, "python") if not block.options]
REFUND = [("c1", "refund", {"order": "7", "amount": 20})]


MODELS = {
    'model="gpt-5"': ("model=openai_model", openai_model),
    'create_agent("openai:gpt-5"': ("create_agent(langgraph_model", langgraph_model),
    'client=OpenAIChatClient(model="gpt-5")': ("client=office_client", agent_framework_client),
    "Agent(tools=[refund]": ("Agent(model=strands_model, tools=[refund]", strands_model),
    'model="gemini-flash-latest"': ("model=adk_model", google_adk_model),
}
"""Code that asks a model on the network, and the name and maker of the scripted model in its place."""


def served(*pages: Block, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the graph of these blocks, in order, with models that ask nobody on the network."""
    module = types.ModuleType("served")
    for name in ("served", "my_agents"):
        monkeypatch.setitem(sys.modules, name, module)
    office = Office(REFUND, "It is paid back.")
    for page in (MINE, *pages):
        text = page.text.replace("    from agent_framework.openai import OpenAIChatClient\n", "")
        for asking, (scripted, make) in reversed(MODELS.items()):
            if asking in text:
                text = text.replace(asking, scripted)
                name = scripted.partition("=")[2].partition(",")[0] or scripted.partition("(")[2]
                module.__dict__[name] = make(office)
        text = text.replace('"openai:gpt-5"', '"test"')
        exec(compile(text, page.page, "exec", dont_inherit=True), module.__dict__)
    return module.__dict__["graph"]


@pytest.mark.parametrize("block", FILES, ids=str)
async def test_each_agent_asks_and_goes_on(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, file in (("strands", "strand.py"), ("google.adk", "adk.py")):
        if file in block.options:
            pytest.importorskip(module)
    run = InMemoryRun(served(block, monkeypatch=monkeypatch), {"letter": "My order 7 was broken."})
    await run.start()
    (question,) = await run.interrupts()
    assert question.kind == "approval"
    await run.respond(question.id, {"approved": True})

    assert run.status == "completed"
    assert run.values["reply"]


async def test_the_rules_of_the_page_say_who_may_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = served(FILES[0], RULES, monkeypatch=monkeypatch)
    run = InMemoryRun(graph, {"letter": "My order 7 was broken."})
    await run.start()
    (question,) = await run.interrupts()

    assert question.requested_capability == "refunds:approve"
    assert question.deadline is not None


def test_the_page_names_the_versions_that_the_adapters_are_tested_with() -> None:
    from abeyance.adapters import agent_framework, langgraph, openai_agents, pydantic_ai

    for adapter in (agent_framework, langgraph, openai_agents, pydantic_ai):
        package, lowest, _ = adapter.TESTED
        assert importlib.metadata.version(package).startswith(lowest.removesuffix("0"))
        assert re.search(rf"tested with .*{lowest.removesuffix('.0')}", read(PAGE))
