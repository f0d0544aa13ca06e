"""The gate of a tool call: may it run? Hooks and an approval decide, or a grant in place of an approval.

A call comes to the gate in the model's turn (`ask_in_turn`). If it needs answers there, its own visit
awaits them and comes to the gate again from the beginning (`VisitGate`): it trusts only the digest of the
arguments that the approver saw. Only the visit can make previews, so it asks those questions itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from abeyance.agents import tool_results
from abeyance.agents.agent import Agent
from abeyance.agents.approvals import (
    APPROVAL,
    approval_question,
    approved_arguments,
    needs_approval,
    shown_unasked,
)
from abeyance.agents.hook_runner import after_hooks, run_hooks
from abeyance.agents.hooks import BeforeToolCall
from abeyance.agents.state import AgentState
from abeyance.agents.tool import Tool, ToolContext, differs, preview_of
from abeyance.agents.tool_errors import CallDenied, CallError
from abeyance.authoring.context import Context
from abeyance.authoring.interrupts import Suspended
from abeyance.core.answering import call_digest
from abeyance.core.approvals import Wanted
from abeyance.core.json import Json
from abeyance.core.outcome import CALL_GRANTED, CALL_STARTED, Asked

HOOKED: Final = "hooked"
"""A key in the item of a visit: hooks asked in the turn."""
DIGEST: Final = "digest"
"""A key in the item of a visit: the digest of a call that needed an approval in the turn."""
_MUST_ASK: Final = "approve"
"""A key in the item of a visit: the call needs an approval, whatever its tool says. Its value is a text
for the approver, or True."""

STARTED: Final = CALL_STARTED.removeprefix("/")
"""The marker in the journal that counts the starts of a gated call's code."""
GRANTED: Final = CALL_GRANTED.removeprefix("/")
"""The marker in the journal with the grant under which a call runs unasked."""
_SHOWN: Final = "shown"
_PREVIEWED: Final = "previewed"
_CONFIRMED: Final = "confirmed"

_NO_ANSWERS: Final[Mapping[str, Json]] = {}


@dataclass(slots=True, eq=False)
class ToolCall:
    """A call of a tool.

    `arguments` and `memory`, the agent's state, change as hooks and the approver change them. `edit` is
    the note about an approver's edit in the result of the call.
    """

    agent: Agent
    tool: Tool
    id: str
    arguments: dict[str, Json]
    memory: AgentState
    edit: dict[str, Json] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """The digest that binds an approval to the tool and the arguments."""
        return call_digest(self.tool.name, self.arguments)

    async def before(self, answers: Mapping[str, Json] = _NO_ANSWERS) -> tuple[Asked, ...]:
        """Run the before-hooks with the answers so far. Return their questions. Raises CallDenied."""
        event = BeforeToolCall(
            tool=self.tool.name, args=self.arguments, call_id=self.id, agent_state=self.memory
        )
        outcome = await run_hooks(self.agent.hooks, event, answers, check=self.tool.read)
        self.memory, self.arguments = outcome.event.agent_state, outcome.event.args
        if (reason := outcome.denied or outcome.cancelled) is not None:
            raise CallDenied(reason)
        return outcome.asked

    async def after(self, result: Mapping[str, Json]) -> dict[str, Json]:
        """Return the result of the call after its hooks."""
        after = await after_hooks(
            self.agent.hooks,
            result,
            tool=self.tool.name,
            call_id=self.id,
            arguments=self.arguments,
            memory=self.memory,
            check=self.tool.checked_result,
        )
        self.memory = after.memory
        return after.result

    def context(self, ctx: Context, memory: AgentState) -> ToolContext:
        """Return the context of the tool's code, which may change `memory`."""
        return ToolContext.of(
            ctx,
            tool=self.tool.name,
            call_id=self.id,
            agent=self.agent.name,
            agent_state=memory,
        )


async def ask_in_turn(
    call: ToolCall, ctx: Context, *, must_ask: bool | str
) -> tuple[dict[str, Json], tuple[Asked, ...]]:
    """Return the questions before a call, and the state of the gate for the call's visit: nothing if the
    call may run at once.

    The visit takes one use of a grant, and asks if it no longer finds one. No grant covers a call with
    `must_ask`, because the framework has a reason for this very call. Raises CallError if the call must
    not run.
    """
    gate: dict[str, Json] = {} if must_ask is False else {_MUST_ASK: must_ask}
    if asked := await call.before():
        return {**gate, HOOKED: True}, asked
    if not must_ask and not await needs_approval(call.tool, call.arguments):
        return {}, ()
    gate[DIGEST] = call.digest
    is_granted = not must_ask and await _find_grant(call, ctx, takes=False) is not None
    if is_granted or call.tool.preview is not None:
        return gate, ()
    return gate, (approval_question(call.tool, call.arguments, _words(gate)),)


class VisitGate:
    """The gate in the visit of a call."""

    def __init__(self, call: ToolCall, ctx: Context) -> None:
        self._call = call
        self._ctx = ctx
        self._journal = ctx.runtime.journal
        self._grant: dict[str, Json] | None = None

    @property
    def is_open(self) -> bool:
        """Whether the call could run at once in the turn, so that no answer matters."""
        return DIGEST not in self._ctx.item and HOOKED not in self._ctx.item

    async def denial(self) -> dict[str, Json] | None:
        """Return the result of a call that must not run; None if it may run.

        Raises Suspended while answers are missing.
        """
        if self.is_open:
            return None
        denial: dict[str, Json] | None = None
        asked: tuple[Asked, ...] = ()
        try:
            asked = await self._questions()
        except CallError as error:
            denial = {**tool_results.of_error(error), **self._call.edit}
        if self._grant is not None or self._journal.get_marker(GRANTED) is not None:
            self._journal.set_marker(GRANTED, self._grant)
        if asked:
            raise Suspended(asked)
        return denial

    async def _questions(self) -> tuple[Asked, ...]:
        """Return the questions that have to be answered before the call may run. Raises CallError if it
        must not.
        """
        ctx, call = self._ctx, self._call
        if HOOKED in ctx.item and (asked := await self._hooks_ask()):
            return asked
        if APPROVAL in ctx.targets:
            return await self._take_approval()
        must_ask = _MUST_ASK in ctx.item
        is_needed = must_ask or self._digest is not None
        if not is_needed and not await needs_approval(call.tool, call.arguments):
            return ()
        if not must_ask:
            self._grant = await self._take_grant()
        if self._grant is not None:
            return ()
        question = self._question(None if call.tool.preview is None else await self._preview())
        self._journal.set_marker(_SHOWN, call.digest)
        return (question,)

    async def _hooks_ask(self) -> tuple[Asked, ...]:
        try:
            return await self._call.before(self._ctx.targets)
        finally:
            if changes := self._call.memory.changes():
                # Changes of the hooks are kept even if the call ends before its code has finished.
                self._journal.partial_patch = {"agent_state": changes}

    @property
    def _digest(self) -> str | None:
        """The digest of the call that the approver is shown."""
        digest: str | None = self._ctx.item.get(DIGEST, self._journal.get_marker(_SHOWN))
        return digest

    async def _take_grant(self) -> dict[str, Json] | None:
        if self._journal.get_marker(STARTED) and (grant := self._journal.get_marker(GRANTED)):
            # The grant does not decide about a call that has begun.
            return dict(grant)
        return await _find_grant(self._call, self._ctx, takes=True)

    async def _take_approval(self) -> tuple[Asked, ...]:
        """Take the approved arguments. Return a new question if the approved preview no longer holds.

        Raises CallDenied.
        """
        call = self._call
        if self._digest != call.digest:
            raise CallDenied("denied: a different call was approved")
        before = self._journal.get_marker(_PREVIEWED)
        requested = call.arguments
        shown = requested if before is None else before["arguments"]
        call.arguments = approved_arguments(call.tool, self._ctx.targets[APPROVAL], shown)
        is_edited = call.arguments != shown
        if is_edited and call.arguments != requested:
            call.edit = tool_results.edit(self._ctx.input.approver, call.arguments)
        elif before is not None and not is_edited:
            call.edit = before["edit"]
        if before is None or self._journal.get_marker(_CONFIRMED):
            return ()
        preview = await self._preview()
        if is_edited or differs(before["preview"], preview):
            return (self._question(preview, before),)
        # If the tool's code asks and goes on, its own changes must not void the approved preview.
        self._journal.set_marker(_CONFIRMED, 1)
        return ()

    def _question(self, preview: Json, before: Mapping[str, Json] | None = None) -> Asked:
        """Return the question of the approval, with the preview if the tool has one. If the approver is
        asked again, `before` is what they saw. Raises ArgumentsError if the call is too large to show.
        """
        call = self._call
        asked = approval_question(call.tool, call.arguments, _words(self._ctx.item))
        if preview is None:
            return asked
        number = 1 if before is None else before["number"] + 1
        shown = {"arguments": call.arguments, "preview": preview, "edit": call.edit}
        self._journal.set_marker(_PREVIEWED, {**shown, "number": number})
        question = replace(asked.question, preview=preview)
        if before is not None:
            why = (
                "its arguments were edited"
                if call.arguments != before["arguments"]
                else "what it would do has changed, or is not known"
            )
            question = replace(
                question,
                prompt=f"{question.prompt} Asked anew: {why} since the approval.",
                payload={**question.payload, "number": number},
                preview={**preview, "before": before["preview"]},
            )
        return replace(asked, question=question)

    async def _preview(self) -> Json:
        call = self._call
        context = call.context(self._ctx, call.memory.fork())
        return await preview_of(call.tool, context, call.arguments)


def _words(item: Mapping[str, Json]) -> str:
    """Return the words of a framework for the approver of a call."""
    must_ask = item.get(_MUST_ASK)
    return must_ask if isinstance(must_ask, str) else ""


async def _find_grant(call: ToolCall, ctx: Context, *, takes: bool) -> dict[str, Json] | None:
    """Return the grant that covers a call, as events and transcript show it; None without one.

    `takes` counts a use of it.
    """
    tool = call.tool
    if tool.remember is None:
        return None
    wanted = Wanted(
        tool=tool.name,
        declaration=tool.remember.declaration,
        graph=ctx.input.root,
        run_id=ctx.run_id,
        origin=ctx.input.origin or ctx.input.execution,
        call=ctx.address,
        arguments=call.arguments,
    )
    grant = await ctx.runtime.find_grant(wanted, takes=takes)
    if grant is None:
        return None
    about = {"tool": tool.name, "call": call.id, "capability": grant.capability}
    return {
        "grant": grant.id,
        "by": grant.by,
        **about,
        "shown": shown_unasked(tool, call.arguments),
    }
