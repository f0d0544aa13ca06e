"""The gate of a tool call: hooks and approval before it, after-hooks behind it.

The model's turn decides first. If the call needs answers, its own visit awaits them and decides again
from the beginning: it trusts only the digest of the arguments that the approver saw.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import quote

from abeyance.agents import tool_results
from abeyance.agents.agent import Agent, Offer
from abeyance.agents.approvals import (
    APPROVE,
    Rejected,
    approval_question,
    approved_arguments,
    needs_approval,
)
from abeyance.agents.hook_runner import HooksOutcome, run_hooks
from abeyance.agents.hooks import AfterToolCall, BeforeToolCall, listens
from abeyance.agents.state import AgentState, AgentValues
from abeyance.agents.tool import Tool, ToolContext, differs, preview_of
from abeyance.agents.tool_errors import CallError
from abeyance.agents.tool_results import UNSEEN
from abeyance.authoring.context import Context
from abeyance.authoring.interrupts import Suspended
from abeyance.core.answering import call_digest
from abeyance.core.json import Json, canonical
from abeyance.core.outcome import Asked, key_of
from abeyance.storage.blobs import Blobs

_SHOWN: Final = "shown"
_PREVIEWED: Final = "previewed"
_CONFIRMED: Final = "confirmed"
_SEEN: Final = "seen"
_APPROVAL: Final = key_of("approval", APPROVE)
_NO_ANSWERS: Final[Mapping[str, Json]] = {}


@dataclass(frozen=True, slots=True)
class Ask:
    """The call waits for answers: to hooks, or to the approval of the arguments with this `digest`."""

    asked: tuple[Asked, ...]
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class Deny:
    """The call does not run. `result` takes the place of the tool's."""

    result: dict[str, Json]


class ToolGate:
    """The gate before one call. `arguments` and `memory` change as hooks and the approver change them.

    `edit` is what the result of the call says of an approver's edit.
    """

    def __init__(
        self, agent: Agent, tool: Tool, call_id: str, arguments: Json, memory: AgentState
    ) -> None:
        self._agent, self._tool, self._call_id = agent, tool, call_id
        self.arguments: dict[str, Json] = dict(arguments)
        self.memory = memory
        self.edit: dict[str, Json] = {}

    async def decide(
        self,
        answers: Mapping[str, Json] = _NO_ANSWERS,
        *,
        with_hooks: bool = True,
        approve: bool = False,
        digest: str | None = None,
        approver: Mapping[str, Json] = _NO_ANSWERS,
        shown: Mapping[str, Json] | None = None,
    ) -> Ask | Deny | None:
        """Decide from the hooks, the approval and the answers so far; None lets the call run.

        `digest` is that of the call that the approver saw: with it, or with `approve`, the call needs an
        approval, whatever the tool says now. `approver` is who gave it. `shown` are the arguments that
        the approver saw, if not those of the call. A tool with previews needs its visit to make one: it
        is asked there, so nothing is asked here.
        """
        tool = self._tool
        if with_hooks:
            event = BeforeToolCall(
                tool=tool.name, args=self.arguments, call_id=self._call_id, agent_state=self.memory
            )
            outcome = await run_hooks(self._agent.hooks, event, answers, check=tool.read)
            self.memory, self.arguments = outcome.event.agent_state, outcome.event.args
            if outcome.asked:
                return Ask(outcome.asked)
            if (reason := outcome.denied or outcome.cancelled) is not None:
                return _denied(reason)
        if _APPROVAL not in answers:
            needed = approve or digest is not None
            if not needed and not await needs_approval(tool, self.arguments):
                return None
            asked_about = call_digest(tool.name, self.arguments)
            if tool.preview is not None:
                return Ask((), asked_about)
            try:
                question = approval_question(tool, self.arguments)
            except CallError as error:
                return Deny(tool_results.error(error.text))
            return Ask((question,), asked_about)
        if digest != call_digest(tool.name, self.arguments):
            return _denied("denied: what was approved is another call")
        approved = approved_arguments(tool, answers[_APPROVAL], shown or self.arguments)
        if isinstance(approved, Rejected):
            return _denied(approved.text)
        if approved != self.arguments:
            self.edit = tool_results.edit(approver, approved)
        self.arguments = approved
        return None

    async def decide_in_call(self, ctx: Context) -> dict[str, Json] | None:
        """Decide in the visit of the call. Return the result of a denial, or None if the call may run.

        Raises Suspended while answers are missing.
        """
        if not needs_answers(ctx):
            return None
        journal = ctx.runtime.journal
        digest = ctx.item.get("digest", journal.get_marker(_SHOWN))
        before = journal.get_marker(_PREVIEWED)
        decision = await self.decide(
            ctx.targets,
            with_hooks="hooked" in ctx.item,
            approve="approve" in ctx.item,
            digest=digest,
            approver=ctx.input.approver,
            shown=None if before is None else before["arguments"],
        )
        if changes := self.memory.changes():
            # Changes of the hooks are kept even if the call ends before its code does.
            ctx.runtime.journal.partial_patch = {"agent_state": changes}
        if isinstance(decision, Ask):
            if decision.digest is not None:
                journal.set_marker(_SHOWN, decision.digest)
            if not decision.asked:
                return self._ask(ctx, await self._preview(ctx), None)
            raise Suspended(decision.asked)
        if decision is not None:
            return decision.result
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
            asked = approval_question(self._tool, self.arguments)
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
        context = ToolContext.of(
            ctx,
            tool=self._tool.name,
            call_id=self._call_id,
            agent=self._agent.name,
            agent_state=self.memory.fork(),
        )
        return await preview_of(self._tool, context, self.arguments)


def needs_answers(ctx: Context) -> bool:
    """Return True if the turn opened questions of hooks or an approval for the call of this visit."""
    return "digest" in ctx.item or "hooked" in ctx.item


def _denied(reason: str) -> Deny:
    return Deny(tool_results.error(reason, is_denied=True))


def after_event(
    tool: str, call_id: str, arguments: dict[str, Json], memory: AgentState, result: Json
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


class AfterHooks:
    """The after-hooks of the calls that a turn collects. They change `memory`, the agent's state."""

    def __init__(self, agent: Agent, ctx: Context, blobs: Blobs, memory: AgentState) -> None:
        self._agent = agent
        self._ctx = ctx
        self._blobs = blobs
        self.memory = memory

    async def of_collected(self, state: AgentValues) -> dict[str, dict[str, Json]]:
        """Return the results of the last turn's calls, by call id, after their hooks.

        Raises Suspended while a hook asks, and Blocked while an MCP server is unavailable.
        """
        journal = self._ctx.runtime.journal
        saved = journal.get_marker(_SEEN) or {"results": {}, "state": {}}
        self.memory.update(saved["state"])
        collected = tool_results.collect(self._ctx.results, self._agent.agents)
        results = {**state.known, **collected}
        seen, asked = await self._run(results, saved["results"])
        hooked = {call_id: seen[call_id] for call_id in seen if UNSEEN in results[call_id]}
        if hooked and self._has_hooks:
            # These hooks must not run again when others ask and are answered.
            journal.set_marker(_SEEN, {"results": hooked, "state": self.memory.changes()})
        return _unless_asked(seen, asked)

    async def of_denied(self, results: Mapping[str, dict[str, Json]]) -> dict[str, dict[str, Json]]:
        """Return results of calls that ran nothing, after their hooks. Raises as `of_collected`."""
        return _unless_asked(*await self._run(results, {}))

    @property
    def _has_hooks(self) -> bool:
        return any(listens(hook, AfterToolCall) for hook in self._agent.hooks)

    async def _run(
        self, results: Mapping[str, Mapping[str, Json]], saved: Mapping[str, dict[str, Json]]
    ) -> tuple[dict[str, dict[str, Json]], list[Asked]]:
        seen: dict[str, dict[str, Json]] = {}
        asked: list[Asked] = []
        is_unseen = any(UNSEEN in result and id_ not in saved for id_, result in results.items())
        offers = await self._agent.available_tools() if is_unseen and self._has_hooks else {}
        for call_id, result in results.items():
            if call_id in saved:
                seen[call_id] = saved[call_id]
            elif UNSEEN not in result or not self._has_hooks:
                seen[call_id] = _without_mark(result)
            else:
                after = await self._run_one(call_id, result, offers)
                if isinstance(after, dict):
                    seen[call_id] = after
                else:
                    asked += after
        return seen, asked

    async def _run_one(
        self, call_id: str, result: Mapping[str, Json], offers: Mapping[str, Offer]
    ) -> dict[str, Json] | Sequence[Asked]:
        """Return the result of one call after its hooks, or their questions."""
        loaded = await tool_results.load(self._blobs, result)
        call = loaded[UNSEEN]
        event = after_event(str(call["tool"]), call_id, call["args"], self.memory, loaded)
        offer = offers.get(event.tool)
        outcome = await run_hooks(
            self._agent.hooks,
            event,
            self._answers(call_id),
            check=None if offer is None else offer.tool.checked_result,
        )
        if outcome.asked:
            return [
                replace(each, process=_process(each.process, call_id)) for each in outcome.asked
            ]
        self.memory = outcome.event.agent_state
        after = tool_results.of_hooks(outcome, loaded)
        if canonical(after) == canonical(tool_results.of_hooks(HooksOutcome(event=event), loaded)):
            after = _without_mark(result)
        else:
            after = {**after, **tool_results.marks(loaded)}
        return await tool_results.store(self._blobs, self._ctx.run_id, after)

    def _answers(self, call_id: str) -> dict[str, Json]:
        """Return the answers to the questions about one call."""
        suffix = _process("", call_id)
        answers = {}
        for key, answer in self._ctx.targets.items():
            process, _, name = key.rpartition("/")
            if process.endswith(suffix):
                answers[f"{process.removesuffix(suffix)}/{name}"] = answer
        return answers


def _unless_asked(
    results: dict[str, dict[str, Json]], asked: Sequence[Asked]
) -> dict[str, dict[str, Json]]:
    if asked:
        raise Suspended(asked)
    return results


def _without_mark(result: Mapping[str, Json]) -> dict[str, Json]:
    return {key: value for key, value in result.items() if key != UNSEEN}


def _process(asking: str | None, call_id: str) -> str:
    """Return the process name of a hook's question about one of several calls."""
    return f"{asking}.{quote(call_id, safe='')}"
