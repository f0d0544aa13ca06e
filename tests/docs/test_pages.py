"""The pages in `PAGES` show examples that work, and name calls, commands and names that exist."""

from __future__ import annotations

import json
import re
import shlex
import sys
import types
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
import typer
from pages import Block, blocks, call_of, perform, prose
from stack import openapi_document

import abeyance
from abeyance import testing
from abeyance.agents.hooks import EVENTS
from abeyance.agents.tool import close_servers
from abeyance.api.problems import PROBLEMS
from abeyance.cli import main
from abeyance.client.client import Inbox
from abeyance.client.conversations import Conversations
from abeyance.client.runs import Runs

PAGES = [
    "how-to/writing-graphs.md",
    "how-to/interrupts.md",
    "how-to/asking-people.md",
    "how-to/control.md",
    "how-to/agents.md",
    "how-to/budgets.md",
    "how-to/coming-from.md",
]
BLOCKS = {page: [each for each in blocks(page, "python") if not each.options] for page in PAGES}
FIRST = {page: each[0] for page, each in BLOCKS.items() if each}
EXAMPLES = [block for each in BLOCKS.values() for block in each[1:]]
FILES = [block for page in PAGES for block in blocks(page, "python") if block.options]
REQUESTS = [block for page in PAGES for block in blocks(page, "http")]
COMMANDS = [
    line for page in PAGES for block in blocks(page, "console") for line in block.text.splitlines()
]
_COMMANDS = typer.main.get_group(main.commands).commands


@pytest.mark.parametrize("block", EXAMPLES, ids=str)
async def test_an_example_does_what_it_asserts(
    block: Block, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert re.search(r"^assert ", block.text, re.MULTILINE), "an example that claims nothing"
    module = types.ModuleType("example")
    monkeypatch.setitem(sys.modules, "example", module)
    await perform(FIRST[block.page], module.__dict__)

    try:
        await perform(block, module.__dict__)
    finally:
        # A server that an example started ends with it.
        await close_servers()


@pytest.mark.parametrize("block", FILES, ids=str)
async def test_a_file_is_a_graph_that_asks_when_it_is_started_as_the_page_says(
    block: Block, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = types.ModuleType("served")
    monkeypatch.setitem(sys.modules, "served", module)
    # The model `test` calls every tool once, and asks nobody on the network.
    text = block.text.replace('"openai:gpt-5"', '"test"').replace("> 1000", ">= 0")
    exec(compile(text, block.page, "exec", dont_inherit=True), module.__dict__)
    graph = module.__dict__["graph"]
    (started,) = [
        shlex.split(line)
        for each in blocks(block.page, "console")
        for line in each.text.splitlines()
        if line.startswith(f"abeyance run {graph.name} ")
    ]
    trial = testing.InMemoryRun(graph, json.loads(started[started.index("--input") + 1]))
    await trial.start()

    assert trial.status == "awaiting-input"


def ours(page: str) -> str:
    """Return what a page says of this project: of tables that compare, all but the first column."""
    text = prose(page)
    return text if page != "how-to/coming-from.md" else re.sub(r"(?m)^\| .*? \| ", "| ", text)


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return openapi_document()


def fields(document: dict[str, Any], call: dict[str, Any]) -> set[str]:
    """Return the fields of a call's body."""
    body = json.dumps(call["requestBody"]["content"]["application/json"]["schema"])
    names = re.findall(r"#/components/schemas/(\w+)", body)
    schemas = [document["components"]["schemas"][name] for name in names]
    return {field for schema in schemas for field in schema["properties"]}


@pytest.mark.parametrize("block", REQUESTS, ids=str)
def test_a_request_is_one_that_the_api_takes(document: dict[str, Any], block: Block) -> None:
    line, _, body = block.text.partition("\n")
    schema = call_of(document, line)["requestBody"]["content"]["application/json"]["schema"]

    jsonschema_rs.validate({**schema, "components": document["components"]}, json.loads(body))


@pytest.mark.parametrize("page", PAGES)
def test_a_call_that_is_mentioned_exists(document: dict[str, Any], page: str) -> None:
    for line, field in re.findall(
        r'`((?:GET|POST|PUT|PATCH|DELETE) /[^`\s]*)`(?:[^`|]* with `{"(\w+)")?', ours(page)
    ):
        call = call_of(document, line)
        assert not field or field in fields(document, call), f"{line} takes no {field}"


@pytest.mark.parametrize("page", PAGES)
def test_a_refusal_has_the_status_that_the_page_says(page: str) -> None:
    statuses = {str(code): status for code, (status, _) in PROBLEMS.items()}
    for status, code in re.findall(r"\b([45]\d\d) `(\w+)`", prose(page)):
        assert statuses[code] == int(status)


def commands(page: str) -> Iterator[str]:
    """Yield the commands in a page's sentences and tables."""
    yield from re.findall(r"`(abeyance [a-z][^`]*)`", prose(page))


@pytest.mark.parametrize("line", [*COMMANDS, *(each for page in PAGES for each in commands(page))])
def test_a_command_has_the_arguments_that_the_command_line_knows(line: str) -> None:
    _, name, *arguments = shlex.split(line)
    command = _COMMANDS[name]

    assert command.make_context(name, arguments)


@pytest.mark.parametrize("page", PAGES)
def test_a_name_that_is_mentioned_exists(page: str) -> None:
    owners = {
        "ctx": {*dir(abeyance.ToolContext), *abeyance.ToolContext.__dataclass_fields__},
        "event": {name for each in EVENTS for name in (*dir(each), *each.__dataclass_fields__)},
        "agent": set(dir(abeyance.Agent)),
        "graph": set(dir(abeyance.Graph)),
        "abeyance.testing": set(dir(testing)),
        "InMemoryRun": set(dir(testing.InMemoryRun)),
        "RunHandle": set(dir(abeyance.RunHandle)),
        "TemporalRun": set(dir(abeyance.TemporalRun)),
        "Client.runs": set(dir(Runs)),
        "Client.inbox": set(dir(Inbox)),
        "Client.conversations": set(dir(Conversations)),
    }
    for owner, known in owners.items():
        for name in re.findall(rf"`(?:await )?{re.escape(owner)}\.(\w+)", ours(page)):
            assert name in known, f"{owner}.{name}"
