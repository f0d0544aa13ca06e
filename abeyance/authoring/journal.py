"""What one attempt at a visit writes down: finished steps, questions asked so far, events of its own.

A step is written down where another worker finds it before the next one begins, so that after a crash
only the step that was in flight may run again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError

from abeyance.authoring.callables import call
from abeyance.authoring.interrupts import AwaitableInterrupt
from abeyance.core.json import Json, size, why_not_json
from abeyance.core.outcome import Emitted
from abeyance.errors import Fatal
from abeyance.schemas.json_types import to_json
from abeyance.schemas.state_model import ValuesError

T = TypeVar("T")
Write: TypeAlias = Callable[[Mapping[str, Json]], Awaitable[None]]
"""Puts the finished steps where another attempt finds them."""

_LARGEST: Final = 1_000_000
"""In bytes: all steps of a visit travel together."""
_MOST_EVENTS: Final = 1_000
_MOST_EVENT_BYTES: Final = 200_000
_LONGEST_NAME: Final = 100
"""Of an event, in characters."""


class Journal:
    """`steps` are those that earlier attempts finished; `messages` counts those read in this pass.
    `partial` is the patch with which the visit ends if it fails, is stopped for good, or ends while it
    waits for an answer. `write` None: nothing can be kept here.
    """

    def __init__(
        self, steps: Mapping[str, Json], write: Write | None, now: Callable[[], datetime]
    ) -> None:
        self.steps: dict[str, Json] = dict(steps)
        self.emitted: list[Emitted] = []
        self.messages = 0
        self.partial: dict[str, Json] = {}
        self._emitted_bytes = 0
        self._write = write
        self._now = now
        self._begun: set[str] = set()
        self._asked: set[str] = set()
        self.unanswered: list[str] = []
        self._promises: list[AwaitableInterrupt[Any]] = []
        self._lock = asyncio.Lock()

    async def step(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """The result of a step: recorded, or that of the function, which is then recorded."""
        self.demand_keeping(f"run the step {name!r}")
        if name in self._begun:
            message = (
                f"the step {name!r} is run twice in one visit, and its result would be taken for that "
                "of the other: give each step a name of its own, such as 'charge-1'"
            )
            raise Fatal(message)
        self._begun.add(name)
        if name not in self.steps:
            work = partial(function, *args, **kwargs)
            await self._keep(name, _as_json(name, await call(work)))
        return _as_declared(name, function, self.steps[name])

    async def _keep(self, name: str, result: Json) -> None:
        async with self._lock:
            steps = {**self.steps, name: result}
            if (actual := size(steps)) > _LARGEST:
                message = (
                    f"with the step {name!r} the results of this visit's steps take {actual} bytes, "
                    f"and may take {_LARGEST}: return a reference to what is large"
                )
                raise Fatal(message)
            assert self._write is not None  # noqa: S101 demanded before the step began
            try:
                await self._write(steps)
            finally:
                # Also if the visit is stopped meanwhile: it is done, and how the visit ends tells so.
                self.steps = steps

    async def mark(self, name: str, value: Json) -> None:
        """Write a mark down as a step that is done. No author's step has its name: it begins with `/`."""
        await self._keep(f"/{name}", value)

    def leave(self, name: str, value: Json) -> None:
        """Leave a mark for the next re-entry; it is written down with what the visit ends with."""
        self.steps[f"/{name}"] = value

    def marked(self, name: str) -> Json:
        """The mark that an attempt at this visit has written; None if there is none."""
        return self.steps.get(f"/{name}")

    def ask(self, key: str) -> None:
        """Note that a question is asked in this pass. Raises Fatal if it was before."""
        self.demand_keeping(f"ask {key!r}")
        if key in self._asked:
            message = (
                f"{key!r} is asked twice in one pass, and the answer to one would be taken for that to "
                "the other: give each question of a visit a name of its own"
            )
            raise Fatal(message)
        self._asked.add(key)

    def promised(self, told: str, ask: Callable[[], Awaitable[T]]) -> AwaitableInterrupt[T]:
        """A question that is asked as soon as code awaits what this returns."""

        async def heard() -> T:
            self._promises.remove(promise)
            return await ask()

        promise = AwaitableInterrupt(told, heard)
        self._promises.append(promise)
        return promise

    def demand_no_open_question(self) -> None:
        """Raise Fatal if code has asked, and has gone on to its end as if it had an answer, or has not
        awaited what it meant to ask.
        """
        for promise in self._promises:
            promise.refuse()
        if self.unanswered:
            message = (
                f"{self.unanswered[0]!r} was asked, and the code went on to its end without the answer: "
                "a bare `except`, an `except BaseException` or a `return_exceptions=True` has caught "
                "what a question ends the visit with. Let that through"
            )
            raise Fatal(message)

    def emit(self, name: str, data: Json) -> None:
        """Note an event of the author's own; it is told when the visit ends, as `user.<name>`."""
        name = name.removeprefix("user.") if isinstance(name, str) else name
        if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME:
            message = (
                f"an event is named {str(name)[:_LONGEST_NAME]!r}; a name is a text of 1 to "
                f"{_LONGEST_NAME} characters"
            )
            raise Fatal(message)
        if (fault := why_not_json(data)) is not None:
            message = f"the event {name!r} carries what is not JSON: {fault}"
            raise Fatal(message)
        self._emitted_bytes += size(data) + len(name)
        if len(self.emitted) >= _MOST_EVENTS or self._emitted_bytes > _MOST_EVENT_BYTES:
            message = (
                f"one visit may emit {_MOST_EVENTS} events and {_MOST_EVENT_BYTES} bytes of them, and "
                "emits more: they travel with what the visit returns"
            )
            raise Fatal(message)
        self.emitted.append(Emitted(name=name, data=data, time=self._now()))

    def demand_keeping(self, wanted: str) -> None:
        """Raise Fatal where nothing can be kept: in a local node."""
        if self._write is None:
            message = f"a local node cannot {wanted}: declare it without local=True"
            raise Fatal(message)


def _as_json(name: str, returned: Any) -> Json:
    try:
        return to_json(returned)
    except ValueError as error:
        message = (
            f"the step {name!r} returned {type(returned).__name__}, which is not JSON: {error}"
        )
        raise Fatal(message) from error


def _as_declared(name: str, function: Callable[..., Any], result: Json) -> Any:
    """What was recorded, as the function's return type says; plain JSON where it says nothing."""
    try:
        declared = get_type_hints(function).get("return", Any)
        adapter: TypeAdapter[Any] = TypeAdapter(declared)
    except (PydanticUserError, PydanticUndefinedAnnotation, NameError, TypeError):
        return result
    try:
        return adapter.validate_json(json.dumps(result))
    except ValidationError as error:
        message = f"the result of the step {name!r} does not fit {declared!r} any more: {error}"
        raise ValuesError(message) from error
