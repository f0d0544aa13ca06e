"""The input of an agent: a text, JSON, or the parts that a message may have."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai.messages import BinaryContent, ImageUrl, UserPromptPart
from scripted_agents import Script, failure

from abeyance import START, Agent, Graph, Send
from abeyance.core.state import Limits
from abeyance.testing import InMemoryRun

PIXEL = b"\x89PNG\r\n\x1a\n"
TEXT = {"type": "text", "text": "What is this?"}
PICTURE = {"type": "media", "media_type": "image/png", "data": base64.b64encode(PIXEL).decode()}


def linked(url: str) -> dict[str, str]:
    return {"type": "media", "media_type": "image/png", "url": url}


class Case(BaseModel):
    about: Any = None
    answer: Any = None


async def asked(
    about: Any, *hosts: str, source: str | Callable[..., Any] = "about"
) -> tuple[InMemoryRun, Any]:
    """Start the run of an agent; return it with the first prompt of the model."""
    script = Script("a pixel")
    graph = Graph("g", state=Case)
    graph.agent("look", Agent("clerk", model=script), input=source, output="answer")
    graph.edge(START, "look")
    limits = Limits(allowed_media_hosts=hosts)
    run = InMemoryRun(graph, {"about": about}, limits=limits)
    await run.start()
    if not script.seen:
        return run, None
    (part,) = script.seen[0][0].parts
    assert isinstance(part, UserPromptPart)
    return run, part.content


@pytest.mark.parametrize("source", ["about", lambda state: state.about])
async def test_an_agent_gets_a_text_and_a_picture(source: Any) -> None:
    run, told = await asked([TEXT, PICTURE], source=source)

    text, picture = told
    assert text == "What is this?"
    assert isinstance(picture, BinaryContent)
    assert (picture.data, picture.media_type) == (PIXEL, "image/png")
    assert run.values["answer"] == "a pixel"
    first = (await run.transcript())[0]
    assert (first.role, first.text) == ("user", "What is this?")
    assert [(each.media_type, each.bytes) for each in first.media] == [("image/png", len(PIXEL))]


async def test_a_picture_is_named_by_a_url_of_a_host_that_is_allowed() -> None:
    _, (_, picture) = await asked([TEXT, linked("https://a.example/p.png")], "a.example")

    assert isinstance(picture, ImageUrl)
    assert picture.url == "https://a.example/p.png"


async def test_a_url_of_any_other_host_is_refused_before_the_model_is_asked() -> None:
    url = "https://a.example@b.example/p.png"
    run, told = await asked([TEXT, linked(url)], "a.example")

    code, message = failure(run)
    assert (code, told) == ("node_failed", None)
    assert url in message
    assert "allowed_media_hosts" in message


async def test_a_faulty_input_part_is_named_with_its_place() -> None:
    run, told = await asked([TEXT, {**PICTURE, "data": "?"}])

    assert told is None
    assert "1.media.data" in failure(run)[1]
    run, _ = await asked([{"type": "media", "media_type": "image/png"}])
    assert "give either `data` or `url`" in failure(run)[1]


@pytest.mark.parametrize(
    ("about", "told"),
    [
        ("a text", "a text"),
        ({"type": "text"}, '{"type":"text"}'),
        ([], "[]"),
        ([TEXT, "text"], '[{"text":"What is this?","type":"text"},"text"]'),
        ([{"type": "claim", "amount": 7}], '[{"amount":7,"type":"claim"}]'),
        (None, "null"),
    ],
)
async def test_an_input_that_is_not_a_list_of_parts_becomes_text(about: Any, told: str) -> None:
    assert (await asked(about))[1] == told


@pytest.mark.parametrize(
    "source", [lambda state, item: item, lambda state, item=None: item, lambda state, each: each]
)
async def test_each_agent_of_a_fan_out_gets_its_own_parts(source: Any) -> None:
    seen: list[Any] = []

    def model(messages: list[Any], info: Any) -> Any:
        seen.append(messages[0].parts[0].content)
        return Script("fine")(messages, info)

    graph = Graph("g", state=Case)

    @graph.node(to=["look"])
    async def split(state: Case) -> list[Send]:
        return [Send("look", [TEXT]), Send("look", "a text")]

    graph.agent("look", Agent("clerk", model=model), input=source)
    graph.edge(START, "split")
    run = InMemoryRun(graph)
    await run.start()

    assert (run.status, seen) == ("completed", [["What is this?"], "a text"])


async def test_a_default_that_a_loop_has_bound_is_not_the_item() -> None:
    for name in ("first", "second"):
        assert (await asked("about", source=lambda state, name=name: name))[1] == name
