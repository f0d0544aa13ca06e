"""The code and the signature of an author's function tell what the function reads and takes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import pytest

from abeyance import START, Context, Graph, testing
from abeyance.authoring.callables import reads_inbox, refuses, takes_inbox


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def around(*given: Any) -> Any:
        return function(*given)

    return around


class Reader:
    inbox: tuple[Any, ...] = ()

    def by_context(self, state: Any, ctx: Context) -> Any:
        return ctx.inbox

    def by_self(self, state: Any, ctx: Context) -> Any:
        return self.inbox


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (lambda state, inbox: inbox, True),
        (lambda state, ctx: ctx.inbox, True),
        (lambda state, context: [each.text for each in context.inbox], True),
        (lambda state, about: (state, about.inbox), True),
        (wrapped(lambda state, ctx: ctx.inbox), True),
        (Reader().by_context, True),
        (Reader().by_self, False),
        (lambda state: state.inbox, False),
        (lambda state, ctx: ctx.answers, False),
        (lambda state, ctx: Reader.inbox, False),
        (lambda state, ctx: (ctx, state.inbox), False),
        (partial(lambda n, state: state, 3), False),
        (str, False),
    ],
)
def test_the_code_of_a_function_tells_whether_it_reads_the_inbox(
    function: Callable[..., Any], found: bool
) -> None:
    assert reads_inbox(function) is found


def test_only_a_parameter_is_handed_over() -> None:
    assert takes_inbox(lambda state, inbox: inbox)
    assert not takes_inbox(lambda state, ctx: ctx.inbox)


@pytest.mark.parametrize(
    ("function", "counts", "found"),
    [
        (lambda state: state, (1, 2), False),
        (lambda state, item: state, (1, 2), False),
        (lambda: None, (1, 2), True),
        (lambda a, b, c: None, (1, 2), True),
        (str, (1,), False),
    ],
)
def test_a_signature_tells_whether_a_function_refuses_arguments(
    function: Callable[..., Any], counts: tuple[int, ...], found: bool
) -> None:
    assert refuses(function, *counts) is found


async def test_the_messages_that_are_there_are_read_from_the_context_too() -> None:
    graph = Graph("g")
    graph.interrupt("ready", prompt="?")

    @graph.node
    async def read(state: dict[str, Any], ctx: Context) -> dict[str, Any]:
        return {"heard": [message.text for message in ctx.inbox]}

    graph.edge(START, "ready")
    graph.edge("ready", "read")
    trial = testing.InMemoryRun(graph)
    await trial.start()
    await trial.send("hello")
    await trial.respond("ready", True)

    assert trial.values["heard"] == ["hello"]
