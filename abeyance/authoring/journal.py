"""Journal of one attempt of a visit: finished steps, questions asked, emitted events.

Each step is persisted before the next one begins, so after a crash only the step in flight may run again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError

from abeyance.authoring.callables import call
from abeyance.authoring.interrupts import GuardedCoroutine
from abeyance.core.json import Json, size, why_not_json
from abeyance.core.outcome import Emitted
from abeyance.core.text import truncate
from abeyance.errors import Fatal
from abeyance.schemas.json_types import to_json
from abeyance.schemas.state_model import ValuesError

T = TypeVar("T")
Write: TypeAlias = Callable[[Mapping[str, Json]], Awaitable[None]]
"""Persists the finished steps for later attempts."""

_MAX_STEP_BYTES: Final = 1_000_000
"""The most bytes of all steps of a visit together, which travel in one payload."""
_MOST_EVENTS: Final = 1_000
_MOST_EVENT_BYTES: Final = 200_000
_LONGEST_NAME: Final = 100
"""The longest name of an event, in characters."""
_MARKER: Final = "/"
"""The prefix that keeps markers apart from the author's steps."""


class Journal:
    """`steps` are the steps that earlier attempts finished. `messages_read` counts the messages read in
    this pass. `partial_patch` is the visit's patch if it fails, is stopped, or ends while it waits for
    an answer. `write` is None in a local node, which persists nothing.
    """

    def __init__(
        self, steps: Mapping[str, Json], write: Write | None, now: Callable[[], datetime]
    ) -> None:
        self.steps: dict[str, Json] = dict(steps)
        self.emitted: list[Emitted] = []
        self.messages_read = 0
        self.partial_patch: dict[str, Json] = {}
        self._emitted_bytes = 0
        self._write = write
        self._now = now
        self._begun: set[str] = set()
        self._asked: set[str] = set()
        self.unanswered: list[str] = []
        self._unawaited: list[GuardedCoroutine[Any]] = []
        self._lock = asyncio.Lock()

    async def step(
        self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Any:
        """Return the recorded result of a step, or call the function and record its result."""
        self.require_durable(f"run the step {name!r}")
        if not isinstance(name, str) or name[:1] in ("", _MARKER) or why_not_json(name):
            raise Fatal(
                f"the name {name!r} of a step is invalid: use a string that is not empty and does not "
                f"begin with {_MARKER!r}, such as 'charge-1'"
            )
        if name in self._begun:
            raise Fatal(
                f"the step {name!r} runs twice in one visit: give each step a unique name, such as "
                "'charge-1'"
            )
        self._begun.add(name)
        if name not in self.steps:
            work = partial(function, *args, **kwargs)
            await self._persist(name, _as_json(name, await call(work)))
        return _as_declared(name, function, self.steps[name])

    async def _persist(self, name: str, result: Json) -> None:
        async with self._lock:
            steps = {**self.steps, name: result}
            if (actual := size(steps)) > _MAX_STEP_BYTES:
                raise Fatal(
                    f"the step {name!r} brings the results of this visit's steps to {actual} bytes, "
                    f"and the limit is {_MAX_STEP_BYTES}: return a reference to large data"
                )
            assert self._write is not None  # noqa: S101 checked before the step began
            try:
                await self._write(steps)
            finally:
                # The step is done, and the outcome must say so even if the visit is stopped meanwhile.
                self.steps = steps

    async def persist_marker(self, name: str, value: Json) -> None:
        """Persist a marker now."""
        await self._persist(f"{_MARKER}{name}", value)

    def set_marker(self, name: str, value: Json) -> None:
        """Set a marker that is persisted with the visit's outcome, for the next re-entry."""
        self.steps[f"{_MARKER}{name}"] = value

    def get_marker(self, name: str) -> Json:
        """Return the marker that this or an earlier attempt set; None if there is none."""
        return self.steps.get(f"{_MARKER}{name}")

    def ask(self, key: str) -> None:
        """Record that a question is asked in this pass. Raise Fatal if it was asked before."""
        self.require_durable(f"ask {key!r}")
        if key in self._asked:
            raise Fatal(
                f"the interrupt {key!r} is asked twice in one pass of a visit: give each interrupt a "
                "unique name"
            )
        self._asked.add(key)

    def guarded(
        self, fault: str, begin: Callable[[], Coroutine[Any, Any, T]]
    ) -> GuardedCoroutine[T]:
        """Return the coroutine of `begin`. The code must await it, or it fails with the text `fault`."""

        def awaited() -> Coroutine[Any, Any, T]:
            self._unawaited.remove(coroutine)
            return begin()

        coroutine = GuardedCoroutine(fault, awaited)
        self._unawaited.append(coroutine)
        return coroutine

    def require_all_awaited(self) -> None:
        """Raise Fatal if the code ended without the answer to a question, or never awaited a call."""
        for coroutine in self._unawaited:
            coroutine.refuse()
        if self.unanswered:
            raise Fatal(
                f"the interrupt {self.unanswered[0]!r} is unanswered, but the code ended: "
                "a bare `except`, `except BaseException` or `return_exceptions=True` caught the "
                "exception that suspends the visit; let it through"
            )

    def emit(self, name: str, data: Json) -> None:
        """Record an event `user.<name>`, which is published when the visit ends."""
        name = name.removeprefix("user.") if isinstance(name, str) else name
        if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME:
            raise Fatal(
                f"the event name {truncate(str(name), _LONGEST_NAME)!r} is invalid: use a string of 1 to "
                f"{_LONGEST_NAME} characters"
            )
        if (fault := why_not_json(data)) is not None:
            raise Fatal(f"the data of the event {name!r} is not JSON: {fault}")
        self._emitted_bytes += size(data) + len(name)
        if len(self.emitted) >= _MOST_EVENTS or self._emitted_bytes > _MOST_EVENT_BYTES:
            raise Fatal(
                f"the visit emits more than {_MOST_EVENTS} events or {_MOST_EVENT_BYTES} bytes of them: "
                "emit fewer, or references to large data"
            )
        self.emitted.append(Emitted(name=name, data=data, time=self._now()))

    def require_durable(self, action: str) -> None:
        """Raise Fatal in a local node, which cannot persist anything."""
        if self._write is None:
            raise Fatal(f"a local node cannot {action}: declare it without local=True")


def _as_json(name: str, returned: Any) -> Json:
    try:
        return to_json(returned)
    except ValueError as error:
        raise Fatal(
            f"the step {name!r} returned a value of type {type(returned).__name__} that is not JSON: "
            f"{error}"
        ) from error


def _as_declared(name: str, function: Callable[..., Any], result: Json) -> Any:
    """Parse a recorded result as the function's return type; plain JSON if it declares none."""
    try:
        declared = get_type_hints(function).get("return", Any)
        if declared in (str, int, bool) and type(result) is declared:
            return result
        adapter: TypeAdapter[Any] = TypeAdapter(declared)
    except (PydanticUserError, PydanticUndefinedAnnotation, NameError, TypeError):
        return result
    try:
        return adapter.validate_json(json.dumps(result))
    except ValidationError as error:
        message = f"the recorded result of the step {name!r} no longer fits {declared!r}: {error}"
        raise ValuesError(message) from error
