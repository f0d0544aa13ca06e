"""Hook events: a tool call of an agent, which hooks observe, change, or ask a person about.

A hook is an object with one or both of the async methods `before_tool_call` and `after_tool_call`, each
of which takes its event. A hook changes the event in place. Before a call, `await event.interrupt(...)`
asks a person and returns the answer. Like a node, a hook that asks runs again from its beginning when the
answer arrives.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from typing import Any, ClassVar, Final, TypeAlias, TypeVar, Unpack, overload

from abeyance.agents.state import AgentState
from abeyance.authoring.callables import can_take
from abeyance.authoring.interrupts import (
    GuardedCoroutine,
    Interrupt,
    Misread,
    QuestionOptions,
    Suspended,
    lowered,
    typed_answer,
)
from abeyance.core.json import Json
from abeyance.core.outcome import Asked
from abeyance.errors import Fatal

T = TypeVar("T")


class HookInterrupts:
    """The interrupts of one hook before one call. `answers` are keyed by `process/name`."""

    def __init__(self, process: str = "hook", answers: Mapping[str, Json] | None = None) -> None:
        self.process = process
        self.asked: Asked | None = None
        self.fault: str | None = None
        self._answers = answers or {}
        self._not_awaited: list[str] = []
        self._names: set[str] = set()
        self._is_closed = False

    def interrupt(self, interrupt: Interrupt) -> GuardedCoroutine[Any]:
        """Return an awaitable that asks when it is awaited."""
        self._not_awaited.append(interrupt.name)
        return GuardedCoroutine(_not_awaited(interrupt.name), partial(self._ask, interrupt))

    def close(self) -> str | None:
        """End the hook. Return the first error of its questions, or None."""
        self._is_closed = True
        if self.fault is None and self._not_awaited:
            self.fault = _not_awaited(self._not_awaited[0])
        return self.fault

    async def _ask(self, interrupt: Interrupt) -> Any:
        """Return the answer. Raises Suspended if there is none yet, and Fatal for an invalid question."""
        if interrupt.name in self._not_awaited:
            self._not_awaited.remove(interrupt.name)
        try:
            question = self._question(interrupt)
            if question.key in self._answers:
                try:
                    return typed_answer(interrupt, self._answers[question.key])
                except Misread as misread:
                    question = replace(question, misfit=str(misread))
        except Exception as error:
            # The hook may catch the error and go on, so the fault is stored.
            self.fault = self.fault or str(error)
            raise
        self.asked = question
        raise Suspended([question])

    def _question(self, interrupt: Interrupt) -> Asked:
        name = interrupt.name
        if self._is_closed:
            raise Fatal(
                f"it asks {name!r} after it has ended, when no question can be opened any more"
            )
        question = lowered(interrupt)
        if name in self._names:
            raise Fatal(
                f"it asks {name!r} twice at one event, so their answers could not be told apart: give "
                "each question of a hook a name of its own"
            )
        if self.asked is not None:
            raise Fatal(
                f"it asks {name!r} while {self.asked.question.name!r} is not answered: ask one question "
                "at a time"
            )
        if isinstance(interrupt.on_timeout, str) and interrupt.on_timeout != "halt":
            raise Fatal(
                f"it asks {name!r} with on_timeout={interrupt.on_timeout!r}, and a hook has no node to "
                "go to: write 'halt' or {\"default\": answer}"
            )
        self._names.add(name)
        return question


def _not_awaited(name: str) -> str:
    return (
        f"it called interrupt({name!r}) without await, so nobody was asked: write `await "
        "event.interrupt(...)`"
    )


Cancel: TypeAlias = bool | str
"""True cancels; a text cancels with a reason."""


@dataclass(slots=True, kw_only=True)
class HookEvent:
    """A tool call of an agent."""

    method: ClassVar[str]
    tool: str
    args: dict[str, Json]
    call_id: str
    agent_state: AgentState = field(default_factory=AgentState)


@dataclass(slots=True, kw_only=True)
class BeforeToolCall(HookEvent):
    """Before a tool runs. `args` may be edited or replaced, and are then validated again.

    `cancel_tool=True`, or a text for the model, cancels the call: its result is an error with that text.
    The first cancellation wins.
    """

    method: ClassVar[str] = "before_tool_call"
    cancel_tool: Cancel = False
    interrupts: HookInterrupts = field(default_factory=HookInterrupts, repr=False, compare=False)

    @overload
    def interrupt(
        self, name: str, *, response: type[T], **options: Unpack[QuestionOptions]
    ) -> Awaitable[T]: ...

    @overload
    def interrupt(
        self, name: str, *, response: Any = None, **options: Unpack[QuestionOptions]
    ) -> Awaitable[Any]: ...

    def interrupt(
        self, name: str, *, response: Any = None, **options: Unpack[QuestionOptions]
    ) -> Awaitable[Any]:
        """Ask a person, and return the answer as the type `response`. It must be awaited.

        The options are those of `Interrupt`, but `on_timeout` is `halt` or `{"default": answer}`. The
        name is unique in a hook before one call. A hook asks one question at a time, and may ask the
        next one after the answer.
        """
        return self.interrupts.interrupt(
            Interrupt(name, response=response, process=self.interrupts.process, **options)
        )


@dataclass(slots=True, kw_only=True)
class AfterToolCall(HookEvent):
    """After a tool ran or was cancelled. `args` are the arguments that it ran with.

    `result` is the result for the model and may be replaced. `error` marks it as the text of an error,
    and may be changed too.
    """

    method: ClassVar[str] = "after_tool_call"
    result: Json = None
    error: bool = False
    cancelled: bool = False


EVENTS: Final[tuple[type[HookEvent], ...]] = (BeforeToolCall, AfterToolCall)
METHODS: Final = tuple(each.method for each in EVENTS)


def listens(hook: object, event: type[HookEvent]) -> bool:
    """Return True if the hook has a method for the event."""
    return getattr(hook, event.method, None) is not None


def hook_faults(hook: object) -> list[str]:
    """Return the reasons why an object cannot be a hook, one sentence each."""
    if isinstance(hook, type):
        return [f"{hook.__name__} is a class; a hook is an object: write {hook.__name__}()"]
    label = f"the hook {type(hook).__name__}"
    faults = list(_method_faults(hook, label))
    if not faults and not any(listens(hook, event) for event in EVENTS):
        faults.append(f"{label} has none of the methods {', '.join(METHODS)}")
    name = getattr(hook, "name", None)
    if name is not None and (not isinstance(name, str) or not name or "/" in name):
        faults.append(
            f"{label} has the invalid name {name!r}: use a text that is not empty and has no '/'"
        )
    return faults


def _method_faults(hook: object, label: str) -> Iterator[str]:
    for method in METHODS:
        attribute = getattr(hook, method, None)
        if attribute is None:
            continue
        if not callable(attribute):
            yield f"{label} has {method}, which is not a method but {attribute!r}"
        elif not inspect.iscoroutinefunction(attribute):
            yield f"{label} has {method}, which is not async: write `async def {method}(self, event)`"
        elif not can_take(attribute, 1):
            yield f"{label} has {method}, which must take one event: write (self, event)"
    for name in dir(hook):
        if name.startswith("_") or name in METHODS:
            continue
        # `getattr` could run code of a property.
        if not callable(inspect.getattr_static(hook, name, None)):
            continue
        close = get_close_matches(_snake(name), METHODS, n=1, cutoff=0.85)
        if close:
            yield f"{label} has {name}, which is never called; is it {close[0]}?"
        elif name.startswith(("before_", "after_")):
            yield f"{label} has {name}, which is never called; there are {', '.join(METHODS)}"


def _snake(name: str) -> str:
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name).removeprefix(
        "on_"
    )
