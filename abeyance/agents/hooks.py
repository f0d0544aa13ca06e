"""The moments in an agent's work that its hooks may look at, change, or ask a person about.

A hook is an object with any of the async methods `before_tool_call`, `after_tool_call`,
`before_model_call`, `after_model_call` and `before_node`, each of which takes its event. What an event
says may be changed in place; `await event.interrupt(...)` asks a person and returns the answer. A hook
that asked is run again from its beginning when there is an answer, as a node's code is.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from difflib import get_close_matches
from typing import Any, ClassVar, Final, TypeAlias

from abeyance.agents.state import AgentState
from abeyance.authoring.callables import can_take
from abeyance.authoring.interrupts import Interrupt, OnTimeout, Suspended, lowered, typed_answer
from abeyance.core.json import Json
from abeyance.core.outcome import Asked
from abeyance.duration import Duration
from abeyance.errors import Fatal


class HookInterrupts:
    """`process` is what the hook is called, `answers` are those that people gave, by `process/name`."""

    def __init__(self, process: str = "hook", answers: Mapping[str, Json] | None = None) -> None:
        self.process = process
        self.asked: Asked | None = None
        self.fault: str | None = None
        self._answers = answers or {}
        self._begun: list[str] = []
        self._names: set[str] = set()
        self._is_closed = False

    def asking(self, interrupt: Interrupt) -> AwaitableHookInterrupt:
        """A question that is asked when it is awaited."""
        self._begun.append(interrupt.name)
        return AwaitableHookInterrupt(self, interrupt)

    def close(self) -> str | None:
        """The hook has ended. What it did wrong about its questions, or None."""
        self._is_closed = True
        if self.fault is None and self._begun:
            self.fault = (
                f"it called interrupt({self._begun[0]!r}) without await, so nobody was asked: write "
                "`await event.interrupt(...)`"
            )
        return self.fault

    def answer(self, interrupt: Interrupt) -> Any:
        """The answer to a question. Raises Suspended if there is none yet, and Fatal for a question that
        may not be asked.
        """
        if interrupt.name in self._begun:
            self._begun.remove(interrupt.name)
        try:
            question = self._question(interrupt)
            if question.key in self._answers:
                return typed_answer(interrupt, self._answers[question.key])
        except Exception as error:
            # Noted, because the hook may catch it and go on.
            self.fault = self.fault or str(error)
            raise
        self.asked = question
        raise Suspended([question])

    def _question(self, interrupt: Interrupt) -> Asked:
        name = interrupt.name
        if self._is_closed:
            message = f"it asks {name!r} after it has ended, where nobody can be asked any more"
            raise Fatal(message)
        question = lowered(interrupt)
        if name in self._names:
            message = (
                f"it asks {name!r} twice at one event, and the answer to one would be taken for that "
                "to the other: give each question of a hook a name of its own"
            )
            raise Fatal(message)
        if self.asked is not None:
            message = (
                f"it asks {name!r} while {self.asked.question.name!r} is not answered: a hook asks one "
                "thing at a time"
            )
            raise Fatal(message)
        if isinstance(interrupt.on_timeout, str) and interrupt.on_timeout != "halt":
            message = (
                f"it asks {name!r} with on_timeout={interrupt.on_timeout!r}; there is no node that a "
                "hook could go to: write 'halt' or {\"default\": answer}"
            )
            raise Fatal(message)
        self._names.add(name)
        return question


class AwaitableHookInterrupt:
    """A question that a hook is about to ask."""

    def __init__(self, desk: HookInterrupts, interrupt: Interrupt) -> None:
        self._desk = desk
        self._interrupt = interrupt

    def __await__(self) -> Generator[Any, None, Any]:
        return self._answered().__await__()

    async def _answered(self) -> Any:
        return self._desk.answer(self._interrupt)


PLACES: Final[Mapping[str, str]] = {
    "after_tool_call": ".after",
    "after_model_call": ".after",
    "before_node": ".node",
}
"""What the name under which a hook asks ends with, at an event that is not the first of its visit. Else
the answer to one question would be taken for that to another one of the same name."""

AFTER_ONE: Final = ".after."
"""Between a hook's name and the id of a call, where it asks about one of several."""

Cancel: TypeAlias = bool | str
"""Whether something is cancelled; a text says why."""


@dataclass(slots=True, kw_only=True)
class HookEvent:
    """What every event is: a moment at which a hook may ask a person."""

    method: ClassVar[str]
    desk: HookInterrupts = field(default_factory=HookInterrupts, repr=False, compare=False)

    def interrupt(
        self,
        name: str,
        *,
        prompt: str | None = None,
        reason: Json = None,
        payload: Json = None,
        response: Any = None,
        requested_capability: str | None = None,
        timeout: Duration | None = None,
        deadline: datetime | None = None,
        on_timeout: OnTimeout = "halt",
    ) -> Awaitable[Any]:
        """Ask a person, and return the answer, as the type that `response` is.

        It has to be awaited. The parameters are those of `Interrupt`, but `on_timeout` is `halt` or
        `{"default": answer}`. A name is unique in a hook at one event; a hook asks one thing at a time,
        and may ask the next when that is answered.
        """
        return self.desk.asking(
            Interrupt(
                name,
                prompt=prompt,
                reason=reason,
                payload=payload,
                response=response,
                requested_capability=requested_capability,
                timeout=timeout,
                deadline=deadline,
                on_timeout=on_timeout,
                process=self.desk.process,
            )
        )


@dataclass(slots=True, kw_only=True)
class BeforeToolCall(HookEvent):
    """A tool is to be run. `args` may be edited or replaced: they are held against the tool again.

    `cancel_tool` True, or a text for the model, has the tool not run: the call is then an error with
    that text. What the first hook says holds.
    """

    method: ClassVar[str] = "before_tool_call"
    tool: str
    args: dict[str, Json]
    call_id: str
    agent_state: AgentState = field(default_factory=AgentState)
    cancel_tool: Cancel = False


@dataclass(slots=True, kw_only=True)
class AfterToolCall(HookEvent):
    """A tool was run, or cancelled. `result` is what the model will be told, and may be replaced;
    `error`: it is the text of an error, and may be changed too. `args` are those that it was run with.
    """

    method: ClassVar[str] = "after_tool_call"
    tool: str
    args: dict[str, Json]
    call_id: str
    agent_state: AgentState = field(default_factory=AgentState)
    result: Json = None
    error: bool = False
    cancelled: bool = False


@dataclass(slots=True, kw_only=True)
class BeforeModelCall(HookEvent):
    """The model is to be asked. Messages may be added to the list, or others put in their places; a
    message itself is not to be changed. `turn` counts from 1.
    """

    method: ClassVar[str] = "before_model_call"
    messages: list[Any]
    turn: int
    agent_state: AgentState = field(default_factory=AgentState)


@dataclass(slots=True, kw_only=True)
class AfterModelCall(HookEvent):
    """The model has answered with `response`, which is to be looked at only."""

    method: ClassVar[str] = "after_model_call"
    response: Any
    usage: Any
    turn: int
    agent_state: AgentState = field(default_factory=AgentState)


@dataclass(slots=True, kw_only=True)
class BeforeNode(HookEvent):
    """A node of the graph is to be run. `cancel_node` True, or a text, has it not run."""

    method: ClassVar[str] = "before_node"
    node: str
    address: str
    values: Mapping[str, Json]
    cancel_node: Cancel = False


EVENTS: Final[tuple[type[HookEvent], ...]] = (
    BeforeToolCall,
    AfterToolCall,
    BeforeModelCall,
    AfterModelCall,
    BeforeNode,
)
METHODS: Final = tuple(each.method for each in EVENTS)


def listens(hook: object, event: type[HookEvent]) -> bool:
    """Whether a hook is to be run at an event."""
    return getattr(hook, event.method, None) is not None


def hook_faults(hook: object) -> list[str]:
    """Everything for which an object cannot be a hook, a sentence each; empty if it can."""
    if isinstance(hook, type):
        return [f"{hook.__name__} is a class; a hook is an object: write {hook.__name__}()"]
    told = f"the hook {type(hook).__name__}"
    faults = list(_method_faults(hook, told))
    if not faults and not any(listens(hook, each) for each in EVENTS):
        faults.append(f"{told} has none of the methods {', '.join(METHODS)}")
    name = getattr(hook, "name", None)
    places = tuple(sorted(set(PLACES.values())))
    if name is not None and (
        not isinstance(name, str)
        or not name
        or "/" in name
        or name.endswith(places)
        or AFTER_ONE in name
    ):
        faults.append(
            f"{told} has the name {name!r}, under which it would ask; a name is a text that is not "
            f"empty, has no '/', does not end with {' or '.join(places)} and has no {AFTER_ONE!r} in it"
        )
    return faults


def _method_faults(hook: object, told: str) -> Iterator[str]:
    for method in METHODS:
        found = getattr(hook, method, None)
        if found is None:
            continue
        if not callable(found):
            yield f"{told} has {method}, which is no method but {found!r}"
        elif not inspect.iscoroutinefunction(found):
            yield f"{told} has {method}, which is not async: write `async def {method}(self, event)`"
        elif not can_take(found, 1):
            yield f"{told} has {method}, which has to take one event: (self, event)"
    for name in dir(hook):
        if name.startswith("_") or name in METHODS:
            continue
        # Statically: a property may do anything when it is read.
        if not callable(inspect.getattr_static(hook, name, None)):
            continue
        close = get_close_matches(_snake(name), METHODS, n=1, cutoff=0.85)
        if close:
            yield f"{told} has {name}, which is never called; is it {close[0]}?"
        elif name.startswith(("before_", "after_")):
            yield f"{told} has {name}, which is never called; there are {', '.join(METHODS)}"


def _snake(name: str) -> str:
    return "".join(f"_{each.lower()}" if each.isupper() else each for each in name).removeprefix(
        "on_"
    )
