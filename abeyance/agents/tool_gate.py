"""The gate of a tool call: hooks and approval before it, after-hooks behind it.

The model's turn decides first. If the call needs answers, its own visit awaits them and decides again
from the beginning: it trusts only the digest of the arguments that the approver saw.
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
from abeyance.agents.hook_runner import HooksOutcome, run_hooks
from abeyance.agents.hooks import AfterToolCall, BeforeToolCall
from abeyance.agents.state import AgentState
from abeyance.agents.tool import Tool, ToolContext, differs, preview_of
from abeyance.agents.tool_errors import CallError
from abeyance.authoring.context import Context
from abeyance.authoring.interrupts import Suspended
from abeyance.core.answering import call_digest
from abeyance.core.approvals import Wanted
from abeyance.core.json import Json
from abeyance.core.outcome import CALL_GRANTED, CALL_STARTED, Asked

_SHOWN: Final = "shown"
_PREVIEWED: Final = "previewed"
_CONFIRMED: Final = "confirmed"
_BEGUN: Final = CALL_STARTED.removeprefix("/")
GRANTED: Final = CALL_GRANTED.removeprefix("/")
"""The marker in the journal of a call that runs unasked: of its grant."""
_NO_ANSWERS: Final[Mapping[str, Json]] = {}


@dataclass(frozen=True, slots=True)
class Ask:
    """The call waits for answers: to hooks, or to the approval of the arguments with this `digest`."""

    asked: tuple[Asked, ...]
    digest: str | None = None


@dataclass(slots=True, eq=False)
class ToolCall:
    """A call of a tool, and the gate before it.

    `arguments` and `memory`, the agent's state, change as hooks and the approver change them. `edit` is
    what the result of the call says of an approver's edit. `granted` names the grant under which the call
    may run unasked.
    """

    agent: Agent
    tool: Tool
    id: str
    arguments: dict[str, Json]
    memory: AgentState
    edit: dict[str, Json] = field(default_factory=dict)
    granted: dict[str, Json] | None = None

    async def decide(
        self,
        ctx: Context,
        answers: Mapping[str, Json] = _NO_ANSWERS,
        *,
        is_own: bool = False,
        with_hooks: bool = True,
        approve: bool = False,
        digest: str | None = None,
        approver: Mapping[str, Json] = _NO_ANSWERS,
        shown: Mapping[str, Json] | None = None,
    ) -> Ask | dict[str, Json] | None:
        """Decide from the hooks, the approval and the answers so far: None lets the call run, a result
        takes the place of the tool's.

        `digest` is that of the call that the approver saw: with it, or with `approve`, the call needs an
        approval, whatever the tool says now. `approver` is who gave it. `shown` are the arguments that
        the approver saw, if not those of the call. A tool with previews needs its visit to make one: it
        is asked there, so nothing is asked here. Nor is it of a call that a grant covers: its own visit
        (`is_own`) decides again, and takes a use of the grant. No grant covers a call that needs an
        approval by `approve`: a framework has its reasons for this very call.
        """
        tool = self.tool
        if with_hooks:
            event = BeforeToolCall(
                tool=tool.name, args=self.arguments, call_id=self.id, agent_state=self.memory
            )
            outcome = await run_hooks(self.agent.hooks, event, answers, check=tool.read)
            self.memory, self.arguments = outcome.event.agent_state, outcome.event.args
            if outcome.asked:
                return Ask(outcome.asked)
            if (reason := outcome.denied or outcome.cancelled) is not None:
                return tool_results.error(reason, is_denied=True)
        if APPROVAL not in answers:
            needed = approve or digest is not None
            if not needed and not await needs_approval(tool, self.arguments):
                return None
            now = call_digest(tool.name, self.arguments)
            self.granted = None if approve else await self._granted(ctx, is_own=is_own)
            if self.granted is not None and is_own:
                return None
            if tool.preview is not None or self.granted is not None:
                return Ask((), now)
            try:
                return Ask((approval_question(tool, self.arguments),), now)
            except CallError as error:
                return tool_results.error(error.text)
        if digest != call_digest(tool.name, self.arguments):
            return tool_results.error("denied: what was approved is another call", is_denied=True)
        try:
            approved = approved_arguments(tool, answers[APPROVAL], shown or self.arguments)
        except CallError as error:
            return tool_results.error(error.text, is_denied=True)
        if approved != self.arguments:
            self.edit = tool_results.edit(approver, approved)
        self.arguments = approved
        return None

    async def _granted(self, ctx: Context, *, is_own: bool) -> dict[str, Json] | None:
        """Return what events and transcript say of the grant that covers the call, None without one. Its
        own visit takes a use.
        """
        journal = ctx.runtime.journal
        if is_own and journal.get_marker(_BEGUN) and (begun := journal.get_marker(GRANTED)):
            # What becomes of it now is no question of the grant.
            return dict(begun)
        if self.tool.remember is None:
            return None
        call = Wanted(
            tool=self.tool.name,
            declaration=self.tool.remember.declaration,
            graph=ctx.input.root,
            run_id=ctx.run_id,
            origin=ctx.input.origin or ctx.input.execution,
            call=ctx.address,
            arguments=self.arguments,
        )
        grant = await ctx.runtime.find_grant(call, takes=is_own)
        if grant is None:
            return None
        about = {"tool": self.tool.name, "call": self.id, "capability": grant.capability}
        shown = shown_unasked(self.tool, self.arguments)
        return {"grant": grant.id, "by": grant.by, **about, "shown": shown}

    async def decide_in_visit(self, ctx: Context) -> dict[str, Json] | None:
        """Decide in the visit of the call. Return the result of a denial, or None if the call may run.

        Raises Suspended while answers are missing.
        """
        if not needs_answers(ctx):
            return None
        journal = ctx.runtime.journal
        before = journal.get_marker(_PREVIEWED)
        decision = await self.decide(
            ctx,
            ctx.targets,
            is_own=True,
            with_hooks="hooked" in ctx.item,
            approve="approve" in ctx.item,
            digest=ctx.item.get("digest", journal.get_marker(_SHOWN)),
            approver=ctx.input.approver,
            shown=None if before is None else before["arguments"],
        )
        if changes := self.memory.changes():
            # Changes of the hooks are kept even if the call ends before its code does.
            journal.partial_patch = {"agent_state": changes}
        if self.granted is not None or journal.get_marker(GRANTED) is not None:
            journal.set_marker(GRANTED, self.granted)
        if isinstance(decision, Ask):
            if decision.digest is not None:
                journal.set_marker(_SHOWN, decision.digest)
            if not decision.asked:
                return self._ask(ctx, await self._preview(ctx), None)
            raise Suspended(decision.asked)
        if decision is not None:
            return decision
        if self.granted is not None:
            return None
        if before is not None and not journal.get_marker(_CONFIRMED):
            return await self._confirm(ctx, before)
        self.edit = self.edit if before is None else before["edit"]
        return None

    async def _confirm(self, ctx: Context, before: Mapping[str, Json]) -> dict[str, Json] | None:
        """Compare what would happen with what was shown. Raises Suspended to ask anew if it differs."""
        is_edited = self.arguments != before["arguments"]
        now = await self._preview(ctx)
        self.edit = self.edit if is_edited else before["edit"]
        if is_edited or differs(before["preview"], now):
            return self._ask(ctx, now, before)
        # The call may ask itself, and have changed what a preview shows when it goes on.
        ctx.runtime.journal.set_marker(_CONFIRMED, 1)
        return None

    def _ask(
        self, ctx: Context, preview: Json, before: Mapping[str, Json] | None
    ) -> dict[str, Json]:
        """Ask with a preview, and with the one before it, if the approver is asked anew. Returns the
        error of a call that is too large to show.
        """
        number = 1 if before is None else before["number"] + 1
        ctx.runtime.journal.set_marker(
            _PREVIEWED,
            {
                "arguments": self.arguments,
                "preview": preview,
                "number": number,
                "edit": self.edit,
            },
        )
        try:
            asked = approval_question(self.tool, self.arguments)
        except CallError as error:
            return tool_results.error(error.text)
        question = replace(asked.question, preview=preview)
        if before is not None:
            why = (
                "its arguments were edited"
                if self.arguments != before["arguments"]
                else ("what it would do has changed, or is not known")
            )
            question = replace(
                question,
                prompt=f"{question.prompt} Asked anew: {why} since the approval.",
                payload={**question.payload, "number": number},
                preview={**preview, "before": before["preview"]},
            )
        raise Suspended([replace(asked, question=question)])

    async def _preview(self, ctx: Context) -> Json:
        return await preview_of(self.tool, self.context(ctx, self.memory.fork()), self.arguments)

    def context(self, ctx: Context, memory: AgentState) -> ToolContext:
        """Return the context of the tool's code, which may change `memory`."""
        return ToolContext.of(
            ctx,
            tool=self.tool.name,
            call_id=self.id,
            agent=self.agent.name,
            agent_state=memory,
        )

    async def after(
        self, result: Mapping[str, Json], answers: Mapping[str, Json] = _NO_ANSWERS
    ) -> HooksOutcome[AfterToolCall]:
        """Run the after-hooks on the result of the call."""
        event = after_event(self.tool.name, self.id, self.arguments, self.memory, result)
        return await run_hooks(self.agent.hooks, event, answers, check=self.tool.checked_result)


def needs_answers(ctx: Context) -> bool:
    """Return True if the turn opened questions of hooks or an approval for the call of this visit."""
    return "digest" in ctx.item or "hooked" in ctx.item


def after_event(
    tool: str,
    call_id: str,
    arguments: dict[str, Json],
    memory: AgentState,
    result: Mapping[str, Json],
) -> AfterToolCall:
    """Return the event of the after-hooks of one call."""
    status, content = tool_results.to_model_text(result)
    return AfterToolCall(
        tool=tool,
        args=arguments,
        call_id=call_id,
        agent_state=memory,
        result=content,
        error=status != "success",
        cancelled=status in {"denied", "interrupted"},
    )
