"""The functions that authors write: how many of (state, context) they take, and how they are called."""

from __future__ import annotations

import asyncio
import contextvars
import dis
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Final

INBOX: Final = "inbox"
"""The parameter by which a function gets messages."""

_CONTEXT_NAMES: Final = frozenset({"context", "ctx"})
_BY_POSITION: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_MOST_TAKEN: Final = 2
_LONGEST_SUMMARY: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCode:
    """A node's function, how many of (state, context) it takes, and whether it takes an inbox."""

    function: Callable[..., Any]
    takes: int
    takes_inbox: bool = False


def code_of(function: Callable[..., Any], count: int) -> NodeCode:
    """The code of a node that is given so many of (state, context)."""
    return NodeCode(function=function, takes=count, takes_inbox=takes_inbox(function))


def summary(text: str | None) -> str:
    """The first paragraph of a docstring, as the description of a node."""
    return (text or "").split("\n\n")[0][:_LONGEST_SUMMARY]


def takes_inbox(function: Callable[..., Any]) -> bool:
    """Whether a function has a parameter `inbox`, for the messages that are there when it starts."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
    return INBOX in parameters and parameters[INBOX].kind is not inspect.Parameter.POSITIONAL_ONLY


def reads_inbox(function: Callable[..., Any]) -> bool:
    """Whether a function wants these messages: by that parameter, or because it says `ctx.inbox`.

    They have to be taken before it starts, so what it says is looked for in its code.
    """
    if takes_inbox(function):
        return True
    written = inspect.unwrap(function)
    code = getattr(getattr(written, "__func__", written), "__code__", None)
    if code is None:
        return False
    second = [*inspect.signature(written).parameters][1:2]
    return any(
        each.opname == "LOAD_ATTR"
        and each.argval == INBOX
        and not _CONTEXT_NAMES.union(second).isdisjoint(_loaded(before))
        for before, each in pairwise(dis.get_instructions(code))
    )


def _loaded(instruction: dis.Instruction) -> tuple[str, ...]:
    if not instruction.opname.startswith("LOAD_"):
        return ()
    names = instruction.argval
    # Some versions of Python load two at once, the last of them on top.
    return (
        (names,)
        if isinstance(names, str)
        else (names[-1],)
        if isinstance(names, tuple) and names
        else ()
    )


def takes(function: Callable[..., Any]) -> int | None:
    """How many of (state, context) a function is to be given; None if it cannot be called so.

    A second parameter with a default (`n=n`, as in a loop that declares nodes) is the author's own,
    unless it is called `ctx` or `context`.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in parameters):
        count = _MOST_TAKEN
    else:
        named = [each for each in parameters if each.kind in _BY_POSITION and each.name != INBOX]
        places = named[:_MOST_TAKEN]
        count = len(places[:1]) + sum(
            each.default is inspect.Parameter.empty or each.name in _CONTEXT_NAMES
            for each in places[1:]
        )
    fits = can_take(function, count, inbox=takes_inbox(function))
    return count if fits else None


def can_take(function: Callable[..., Any], count: int, *, inbox: bool = False) -> bool:
    """Whether a function can be called with so many arguments, and perhaps an inbox."""
    try:
        inspect.signature(function).bind(*range(count), **({INBOX: ()} if inbox else {}))
    except (TypeError, ValueError):
        return False
    return True


def refuses(function: Callable[..., Any], *counts: int) -> bool:
    """Whether it is known that a function takes none of these numbers of arguments. Of what is built in,
    such as `str`, it is not.
    """
    try:
        inspect.signature(function)
    except ValueError:
        return False
    return not any(can_take(function, count) for count in counts)


async def call(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Call an author's function: a coroutine function here, a plain one in a thread.

    Raises what it raises, but for what would not end the call alone: a `SystemExit` would end the
    process, and with it every other visit, on one worker after the other; a `CancelledError` that
    nobody asked for looks like a worker that shuts down. They come as a RuntimeError.
    """
    try:
        if inspect.iscoroutinefunction(function):
            return await function(*arguments, **named)
        returned = await _in_thread(partial(function, *arguments, **named))
        return await returned if inspect.isawaitable(returned) else returned
    except SystemExit as error:
        message = (
            f"the code asked its process to exit ({error.code!r}), which would end other visits"
        )
        raise RuntimeError(message) from error
    except asyncio.CancelledError as error:
        if _is_asked_to_stop():
            raise
        message = "the code was cancelled by itself: it awaited something that it had cancelled"
        raise RuntimeError(message) from error


async def _in_thread(function: partial[Any]) -> Any:
    def work() -> Any:
        try:
            return function()
        except StopIteration as error:
            # It cannot pass through a future: whoever awaits that would wait for ever.
            told = "it asked an empty iterator for its next item"
            message = f"{function.func!r} raised StopIteration: {told}"
            raise RuntimeError(message) from error

    loop = asyncio.get_running_loop()
    running = loop.run_in_executor(None, contextvars.copy_context().run, work)
    # A thread cannot be stopped, only told (`ctx.cancelled`). To leave it would let the same visit run
    # twice at once, so a cancel waits for it like everybody else.
    stop: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait({running})
        except asyncio.CancelledError as error:
            stop = error
    if stop is not None and running.exception() is not None:
        # Told to stop, it did, by raising. What returns has finished, and what it returns counts.
        raise stop from running.exception()
    return running.result()


def _is_asked_to_stop() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
