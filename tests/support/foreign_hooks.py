"""What each framework may put before a call of `pay`, and what it does there.

`Hooked.agent` makes an agent of the framework with one thing before the call; `alone` runs it without
Abeyance, and `wrap` makes it the agent of a node.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from foreign_office import FRAMEWORKS, Office, _named, strands_model

from abeyance.adapters import ForeignAgent

Does: TypeAlias = Literal["no", "change", "error", "no later"]
"""`no later` lets a call through when it is first asked, and never again."""


class Refused(Exception):
    """What stands before the call raises this."""


class Guard:
    """Decides about calls. Its count outlives the agents that are made anew for each turn."""

    def __init__(self, does: Does) -> None:
        self.does = does
        self._asked = 0

    @property
    def refuses(self) -> bool:
        self._asked += 1
        if self.does == "error":
            raise Refused("the guard is broken")
        return self.does == "no" or (self.does == "no later" and self._asked > 1)

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        return {"x": 7} if self.does == "change" else dict(given)


@dataclass(frozen=True)
class Hooked:
    """`places` says what each place that comes before a call can do."""

    places: Mapping[str, Sequence[Does]]
    agent: Callable[[Office, str, Guard], Any]
    alone: Callable[[Any], Awaitable[Any]]
    wrap: Callable[..., ForeignAgent]


ALL: Sequence[Does] = ("no", "change", "error", "no later")


def strands() -> Hooked:
    from strands import Agent, tool
    from strands.hooks import BeforeToolCallEvent, BeforeToolsEvent
    from strands.interventions import Deny, InterventionHandler, Proceed, Transform
    from strands.middleware import ExecuteToolStage

    from abeyance.adapters.strands import strands_agent

    def agent(office: Office, place: str, guard: Guard) -> Any:
        def hook(event: Any) -> None:
            if guard.refuses:
                event.cancel_tool = "No."
            use = event.tool_use
            event.tool_use = {**use, "input": guard.arguments(use["input"])}

        def before_all(event: Any) -> None:
            if guard.refuses:
                event.cancel = "No."

        class Rule(InterventionHandler):  # type: ignore[misc, unused-ignore]
            name = "rule"

            def before_tool_call(self, event: Any, **_: Any) -> Any:
                if guard.refuses:
                    return Deny(reason="No.")
                if guard.does != "change":
                    return Proceed()
                given = guard.arguments(event.tool_use["input"])
                return Transform(apply=lambda event: event.tool_use.update(input=given))

        async def wrapped(context: Any, call_next: Any) -> Any:
            use = context.tool_use
            if guard.refuses:
                return
            given = {**use, "input": guard.arguments(use["input"])}
            async for event in call_next(context.replace(tool_use=given)):
                yield event

        def input_(context: Any) -> Any:
            if guard.refuses:
                return context.replace(tool=None)
            use = context.tool_use
            return context.replace(tool_use={**use, "input": guard.arguments(use["input"])})

        clerk = Agent(
            model=strands_model(office),
            tools=[tool(_named("pay", office.pay))],
            name="clerk",
            callback_handler=None,
            interventions=[Rule()] if place == "intervention" else None,
        )
        match place:
            case "hook":
                clerk.hooks.add_callback(BeforeToolCallEvent, hook)
            case "last hook":
                clerk.hooks.add_callback(BeforeToolCallEvent, hook, order=1_000)
            case "hook before all calls":
                clerk.hooks.add_callback(BeforeToolsEvent, before_all)
            case "middleware":
                clerk.add_middleware(ExecuteToolStage, wrapped)
            case "input middleware":
                clerk.add_middleware(ExecuteToolStage.Input, input_)
            case _:
                pass
        return clerk

    return Hooked(
        places={
            "hook": ALL,
            "last hook": ALL,
            "hook before all calls": ("no", "error", "no later"),
            "intervention": ALL,
            "middleware": ("no", "change", "error"),
            "input middleware": ("no", "change", "error"),
        },
        agent=agent,
        alone=lambda agent: agent.invoke_async("Pay what is due."),
        wrap=strands_agent,
    )


HOOKED = {name: make() for name, make in {"strands": strands}.items() if name in FRAMEWORKS}
