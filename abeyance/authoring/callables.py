"""Author functions: which arguments they take, and how they are called."""

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
"""The name of the parameter that receives messages."""

_CONTEXT_NAMES: Final = frozenset({"context", "ctx"})
_BY_POSITION: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_MOST_TAKEN: Final = 2
_LONGEST_SUMMARY: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCode:
    """A node's function; `takes` is how many of (state, context) it takes.

    `retry_on` are the exceptions after which it is tried again.
    """

    function: Callable[..., Any]
    takes: int
    takes_inbox: bool = False
    retry_on: tuple[type[BaseException], ...] = (BaseException,)


def code_of(
    function: Callable[..., Any],
    count: int,
    retry_on: tuple[type[BaseException], ...] = (BaseException,),
) -> NodeCode:
    """Return the code of a node whose function takes `count` of (state, context)."""
    return NodeCode(
        function=function, takes=count, takes_inbox=takes_inbox(function), retry_on=retry_on
    )


def summary(text: str | None) -> str:
    """Return the first paragraph of a docstring, as the description of a node."""
    return (text or "").split("\n\n")[0][:_LONGEST_SUMMARY]


def takes_inbox(function: Callable[..., Any]) -> bool:
    """Return True if the function has a parameter `inbox`."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
    return INBOX in parameters and parameters[INBOX].kind is not inspect.Parameter.POSITIONAL_ONLY


def reads_inbox(function: Callable[..., Any]) -> bool:
    """Return True if the function has a parameter `inbox`, or uses `ctx.inbox`.

    Messages are taken before the function starts, so its bytecode is searched for `ctx.inbox`.
    """
    if takes_inbox(function):
        return True
    unwrapped = inspect.unwrap(function)
    code = getattr(getattr(unwrapped, "__func__", unwrapped), "__code__", None)
    if code is None:
        return False
    second = [*inspect.signature(unwrapped).parameters][1:2]
    return any(
        instruction.opname == "LOAD_ATTR"
        and instruction.argval == INBOX
        and not _CONTEXT_NAMES.union(second).isdisjoint(_loaded(before))
        for before, instruction in pairwise(dis.get_instructions(code))
    )


def _loaded(instruction: dis.Instruction) -> tuple[str, ...]:
    if not instruction.opname.startswith("LOAD_"):
        return ()
    names = instruction.argval
    # Some versions of Python load two names at once, the last of them on top.
    return (
        (names,)
        if isinstance(names, str)
        else (names[-1],)
        if isinstance(names, tuple) and names
        else ()
    )


def takes(function: Callable[..., Any]) -> int | None:
    """Return the number of arguments to pass of (state, context); None if the function does not fit.

    A second parameter with a default (`n=n`, as in a loop that declares nodes) is not filled, unless its
    name is `ctx` or `context`.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(one.kind is inspect.Parameter.VAR_POSITIONAL for one in parameters):
        count = _MOST_TAKEN
    else:
        named = [one for one in parameters if one.kind in _BY_POSITION and one.name != INBOX]
        places = named[:_MOST_TAKEN]
        count = len(places[:1]) + sum(
            one.default is inspect.Parameter.empty or one.name in _CONTEXT_NAMES
            for one in places[1:]
        )
    fits = can_take(function, count, inbox=takes_inbox(function))
    return count if fits else None


def can_take(function: Callable[..., Any], count: int, *, inbox: bool = False) -> bool:
    """Return True if the function accepts `count` positional arguments (and an inbox)."""
    try:
        inspect.signature(function).bind(*range(count), **({INBOX: ()} if inbox else {}))
    except (TypeError, ValueError):
        return False
    return True


def refuses(function: Callable[..., Any], *counts: int) -> bool:
    """Return True if the function accepts none of these numbers of arguments.

    The signature of a built-in such as `str` is unknown, so it is not refused.
    """
    try:
        inspect.signature(function)
    except ValueError:
        return False
    return not any(can_take(function, count) for count in counts)


async def call(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Call an author's function: a coroutine function on this event loop, a plain one in a thread.

    Raise what it raises, with two exceptions that become a RuntimeError: `SystemExit`, which would end
    the process and all its visits, and a `CancelledError` that did not come from outside, which would
    look like a worker's shutdown.
    """
    try:
        if inspect.iscoroutinefunction(function):
            return await function(*arguments, **named)
        returned = await _in_thread(partial(function, *arguments, **named))
        return await returned if inspect.isawaitable(returned) else returned
    except SystemExit as error:
        raise RuntimeError(
            f"the code called sys.exit({error.code!r}): raise an error that ends only its visit"
        ) from error
    except asyncio.CancelledError as error:
        if _is_cancelling():
            raise
        message = "the code awaited something that it had cancelled: catch the CancelledError"
        raise RuntimeError(message) from error


async def _in_thread(function: partial[Any]) -> Any:
    def work() -> Any:
        try:
            return function()
        except StopIteration as error:
            # A future cannot carry it: its awaiter would wait forever.
            raise RuntimeError(
                f"{function.func!r} raised StopIteration: next() was called on an empty iterator"
            ) from error

    loop = asyncio.get_running_loop()
    running = loop.run_in_executor(None, contextvars.copy_context().run, work)
    # A thread cannot be stopped from outside, only through `ctx.cancelled`. If it were abandoned, the
    # same visit could run twice at once, so a cancellation waits for it.
    stop: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait({running})
        except asyncio.CancelledError as error:
            stop = error
    if stop is not None and running.exception() is not None:
        # The function stopped by raising. If it returned, it has finished, and its result counts.
        raise stop from running.exception()
    return running.result()


def _is_cancelling() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
