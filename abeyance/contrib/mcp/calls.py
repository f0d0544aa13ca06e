"""The calls of MCP, of one caller.

A call of a graph starts a run, and waits a while for its end. Its response then depends on the client: a
task, the questions to ask its user, or a result that tells what the run waits for. The run goes on in any
case, also if the client has gone away.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import mcp_types as protocol
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from abeyance import commands, views
from abeyance.api.auth import RESPONDS, STARTS, Credentials, require
from abeyance.api.dependencies import (
    Backend,
    check_run_id,
    run_id_of,
    run_of_interrupt,
    sleep_unless,
    unknown_interrupt,
)
from abeyance.api.rights import may_read, require_readable, seen_by, vouched
from abeyance.api.routers import runs
from abeyance.api.schemas import StartBody
from abeyance.authoring.graph import Graph
from abeyance.client.rpc import unknown_run
from abeyance.contrib.mcp import forms, tools
from abeyance.contrib.talk import segments
from abeyance.contrib.talk.posted import unrounded
from abeyance.core import policy
from abeyance.core.json import Json, sha256
from abeyance.core.ledger import Receipt
from abeyance.core.state import Status
from abeyance.errors import Code, Refusal
from abeyance.filters import InboxFilter
from abeyance.schemas.faults import at_pointer
from abeyance.util import checked_key, invalid

Outcome: TypeAlias = protocol.CallToolResult | protocol.InputRequiredResult | dict[str, Any]
"""The response of a call: its result, the questions for the client's user, or a task."""

WAIT_SECONDS: Final = 30.0
"""How long a call waits before it says what the run waits for."""
_AGAIN_SECONDS: Final = 1.0
_MOST_ROUNDS: Final = 9
"""How often a client is sent back. The official clients give up after ten times, with an error."""
_PAGE: Final = 20
_ID_BYTES: Final = 16
_EVENTS: Final = 1_000
_PAUSE_SECONDS: Final = 0.2
_CHANGES: Final = ("run.", "interrupt.", "node.blocked", "node.unblocked")
"""Prefixes of the types of events that may change a task."""
_GOING_ON: Final = frozenset({"working", "input_required"})
_WAITS: Final = frozenset({str(Status.AWAITING_INPUT)})
_ILL_TYPED: Final = frozenset(
    {
        *(Code.INVALID_ANSWER, Code.DECISION_NOT_ALLOWED),
        *(Code.NOT_REMEMBERABLE, Code.GRANT_TOO_WIDE),
    }
)
_SUPERSEDED: Final = frozenset(
    {
        Code.ALREADY_ANSWERED,
        Code.EXPIRED,
        Code.NOT_ROOT_CAUSE,
        Code.RUN_FINISHED,
        Code.STALE,
        Code.UNKNOWN_INTERRUPT,
        Code.WITHDRAWN,
    }
)
"""The refusals of an answer to a question that is not open any more: there is nothing to answer."""


class CallState(BaseModel):
    """The state that a client keeps of a call that it repeats with answers: the run, and the ids of shown
    questions that need not be asked again.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    run_id: str
    known: frozenset[str] = frozenset()
    rounds: int = Field(default=0, ge=0, description="How often the client was sent back.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A run as it was read, with the open questions that can be answered directly."""

    view: views.RunView
    questions: tuple[views.InterruptView, ...] = ()

    def beyond(self, known: frozenset[str]) -> list[views.InterruptView]:
        """Return the questions that are not known."""
        return [each for each in self.questions if segments.shown_id(each) not in known]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Round:
    """The outcome of one repetition of a call with answers: the questions that need not be asked again,
    the refused answers, each with the reason, and whether a question was left open.
    """

    number: int = 0
    known: frozenset[str] = frozenset()
    refused: Mapping[str, str] = field(default_factory=dict)
    is_left_open: bool = False


class Caller:
    """The caller of one request, with its client's abilities. `base` is the address of this service."""

    def __init__(
        self, backend: Backend, credentials: Credentials, abilities: forms.Abilities, base: str
    ) -> None:
        self._backend = backend
        self._client = backend.connection.client
        self._credentials = credentials
        self._principal = credentials.principal
        self._reads = credentials.reads
        self._abilities = abilities
        self._base = base
        self._longest = min(WAIT_SECONDS, backend.settings.default_timeout)

    async def call(
        self, graphs: Mapping[str, Graph], params: protocol.CallToolRequestParams
    ) -> Outcome:
        """Call a tool: a graph or one of our own. Raises the refusals of the calls of the API that do
        the same.
        """
        arguments = params.arguments or {}
        if params.request_state is not None:
            state = CallState.model_validate_json(params.request_state)
            return await self._repeated(state, params.input_responses or {})
        match params.name:
            case tools.PENDING:
                return await self._pending(tools.read(tools.PendingArguments, arguments))
            case tools.ANSWER:
                return await self._answer(tools.read(tools.AnswerArguments, arguments))
            case tools.ASK:
                asked = tools.read(tools.AskArguments, arguments)
                return await self._run(tools.asking(asked), {"question": asked.question}, params)
            case name:
                return await self._run(graphs[name], arguments, params)

    async def _run(
        self, graph: Graph, values: Mapping[str, Any], params: protocol.CallToolRequestParams
    ) -> Outcome:
        require(self._principal, STARTS)
        key = checked_key((params.meta or {}).get(forms.KEY), {"pointer": f"/_meta/{forms.KEY}"})
        run_id = f"mcp-{secrets.token_hex(_ID_BYTES)}"
        if key is not None:
            run_id = run_id_of(self._client.task_queue, self._principal.subject, key)
        body = StartBody(graph=graph.name, input=dict(values), run_id=run_id)
        request = sha256({"tool": params.name, "arguments": dict(params.arguments or {})})
        await runs.start(
            body,
            None if key is None else request,
            caller=self._principal,
            backend=self._backend,
            reads=self._reads,
            graph=graph,
        )
        if self._abilities.tasks:
            return forms.created(await self._client.run(run_id).view())
        return self._response(await self._settled(run_id))

    async def _repeated(self, state: CallState, responses: protocol.InputResponses) -> Outcome:
        """Take the answers of a call that is repeated, and wait again."""
        await self._own(state.run_id)
        round_ = await self._take(state, responses)
        is_told_now = round_.is_left_open or bool(round_.refused)
        wait = 0.0 if is_told_now else self._longest
        return self._response(await self._settled(state.run_id, round_.known, wait), round_)

    async def _take(self, state: CallState, responses: protocol.InputResponses) -> _Round:
        known, refused, is_left_open = {*state.known}, {}, False
        moment = await self._moment(await self._client.run(state.run_id).view())
        questions = {segments.shown_id(each): each for each in moment.questions}
        for shown, response in responses.items():
            question = questions.get(shown)
            if question is None or not isinstance(response, protocol.ElicitResult):
                # It was never asked, is answered by now, or has changed since.
                continue
            answer = forms.answer_of(question, response, self._abilities)
            if answer is ...:
                known.add(shown)
                is_left_open |= response.action != "accept"
                continue
            try:
                (receipt,) = await self._respond(state.run_id, {shown: answer})
            except Refusal as refusal:
                if refusal.code in _ILL_TYPED:
                    refused[shown] = refusal.message
                elif refusal.code not in _SUPERSEDED:
                    raise
            else:
                if receipt.status == "voted":
                    known.add(shown)
        return _Round(
            number=state.rounds,
            known=frozenset(known),
            refused=refused,
            is_left_open=is_left_open,
        )

    async def _respond(
        self, run_id: str, answers: Mapping[str, Json], *, note: str | None = None
    ) -> list[Receipt]:
        """Answer questions of a run, by the ids under which they were shown."""
        require(self._principal, RESPONDS)
        shown = {key: segments.parted_id(key) for key in answers}
        order = commands.Respond(
            responses={shown[key][0]: answer for key, answer in answers.items()},
            digests={id_: digest for id_, digest in shown.values() if digest},
            note=note,
            principal=self._principal,
        )
        return await self._client.run(run_id).respond_to(vouched(order, self._credentials))

    async def _own(self, run_id: str) -> views.RunView:
        """Return a run that the caller has started. Raises `unknown_run` for any other."""
        check_run_id(run_id)
        try:
            view = await self._client.run(run_id).view()
        except Refusal as refusal:
            raise unknown_run(run_id) from refusal
        if view.started_by != self._principal.subject or not self._reads.may_read(view.labels):
            raise unknown_run(run_id)
        return view

    async def _moment(self, view: views.RunView) -> Moment:
        if view.ended_at is not None:
            return Moment(view=view)
        asked = segments.answerable(await self._client.run(view.run_id).interrupts())
        seen = await seen_by(self._principal, asked, self._client)
        return Moment(view=view, questions=tuple(seen))

    async def _settled(
        self, run_id: str, known: frozenset[str] = frozenset(), wait: float | None = None
    ) -> Moment:
        """Return the run once it has ended or waits for answers to questions that are not known, or after
        `wait` seconds. Without `wait`, it takes as long as a call waits.
        """
        loop, stopping = asyncio.get_running_loop(), self._backend.stopping
        deadline = loop.time() + (self._longest if wait is None else wait)
        while True:
            left = max(0.0, deadline - loop.time())
            view = await self._waited(run_id, left)
            moment = await self._moment(view)
            is_asked = view.status == Status.AWAITING_INPUT and moment.beyond(known)
            is_over = loop.time() >= deadline or stopping.is_set()
            if view.ended_at is not None or is_asked or is_over:
                return moment
            # All open questions are known. Somebody may answer them elsewhere.
            await sleep_unless(stopping, min(_AGAIN_SECONDS, deadline - loop.time()))

    async def _waited(self, run_id: str, seconds: float) -> views.RunView:
        """Return the run once it waits for people or has ended, or after `seconds`, or when the
        service stops.
        """
        run = self._client.run(run_id)
        waiting = asyncio.create_task(run.wait(until=_WAITS, timeout=seconds))
        stop = asyncio.create_task(self._backend.stopping.wait())
        try:
            await asyncio.wait({waiting, stop}, return_when=asyncio.FIRST_COMPLETED)
            return waiting.result() if waiting.done() else await run.view()
        finally:
            # Do not wait for them: the request of a client that has gone is cancelled repeatedly.
            waiting.cancel()
            stop.cancel()

    def _response(self, moment: Moment, round_: _Round | None = None) -> Outcome:
        """Return the response of a call about a run, to a client without tasks."""
        view, round_ = moment.view, round_ or _Round()
        if view.ended_at is not None:
            return forms.result_of(view)
        asked = moment.beyond(round_.known)
        requests: dict[str, protocol.InputRequest] = {}
        for each in asked:
            shown = segments.shown_id(each)
            why = round_.refused.get(shown)
            request = forms.request_of(each, self._abilities, self._base, why=why)
            if request is not None:
                requests[shown] = request
        # A client with nothing to ask its user repeats the call at once.
        is_over = (round_.is_left_open or bool(asked)) and not requests
        if is_over or round_.number >= _MOST_ROUNDS or not self._abilities.rounds:
            return forms.not_yet(view, moment.questions, self._base)
        state = CallState(run_id=view.run_id, known=round_.known, rounds=round_.number + 1)
        return protocol.InputRequiredResult(
            input_requests=requests or None, request_state=state.model_dump_json()
        )

    async def owns(self, task_id: str) -> bool:
        """Return whether there is a task of this id, which is a run that the caller has started."""
        try:
            await self._own(task_id)
        except Refusal:
            return False
        return True

    async def task(self, task_id: str) -> dict[str, Any]:
        """Return a task, which is a run that the caller has started. Raises `unknown_run`."""
        moment = await self._moment(await self._own(task_id))
        return forms.task_of(moment.view, moment.questions, self._abilities, self._base)

    async def follow(self, task_id: str) -> AsyncGenerator[dict[str, Any], None]:
        """Yield a task as it is, and again whenever it has changed, until it has ended. Raises
        `unknown_run`, and the errors of the feed.
        """
        feed, after, last = self._client.feed, None, None
        while True:
            events, then = await feed.page(task_id, after, _EVENTS)
            after = events[-1].id if events else after
            if then is None or not events:
                break
        while True:
            task = await self.task(task_id)
            if task != last:
                yield task
            if task["status"] not in _GOING_ON:
                return
            last, before = task, after
            async with aclosing(await feed.opened(task_id, after)) as latest:
                async for event in latest:
                    after = event.id
                    if event.type.startswith(_CHANGES):
                        break
            if after == before:
                # The feed has ended without an event: do not look again at once.
                await asyncio.sleep(_PAUSE_SECONDS)

    async def update(self, task_id: str, responses: Mapping[str, Any]) -> None:
        """Answer all given questions of a task that are open, or none.

        Raises as `POST /runs/{run_id}/respond`.
        """
        moment = await self._moment(await self._own(task_id))
        questions = {segments.shown_id(each): each for each in moment.questions}
        answers: dict[str, Json] = {}
        for shown, response in responses.items():
            if (question := questions.get(shown)) is None:
                # The protocol ignores answers to questions that were never asked, are answered by now, or
                # have changed since.
                continue
            answer = forms.answer_of(question, _elicited(shown, response), self._abilities)
            if answer is not ...:
                answers[shown] = answer
        if answers:
            await self._respond(task_id, answers)

    async def cancel(self, task_id: str) -> None:
        """Cancel a task. One that has ended stays as it is. Raises as `POST /runs/{run_id}/cancel`."""
        await self._own(task_id)
        require(self._principal, policy.CONTROL)
        try:
            await self._client.run(task_id).control(commands.Cancel(actor=self._principal.subject))
        except Refusal as refusal:
            if refusal.code is not Code.NOT_RUNNING:
                raise

    async def _pending(self, arguments: tools.PendingArguments) -> Outcome:
        if arguments.run_id is not None:
            check_run_id(arguments.run_id)
            await require_readable(self._client, self._reads, arguments.run_id)
            moment = await self._settled(arguments.run_id)
            return forms.standing(moment.view, moment.questions, self._base)
        found, cursor = await self._client.inbox.list(
            InboxFilter(reads=self._reads), cursor=arguments.cursor, limit=_PAGE
        )
        seen = await seen_by(self._principal, found, self._client)
        return forms.listed(seen, cursor, self._base)

    async def _answer(self, arguments: tools.AnswerArguments) -> Outcome:
        id_ = arguments.interrupt_id
        run_id = run_of_interrupt(id_)
        if not await may_read(self._client, self._reads, run_id):
            raise unknown_interrupt(id_)
        shown, answer = segments.shown_as(id_, arguments.digest), arguments.answer
        if (question := await self._client.run(run_id).interrupt(id_)) is not None:
            answer = unrounded(answer, question)
        (receipt,) = await self._respond(run_id, {shown: answer}, note=arguments.note)
        moment = await self._settled(run_id)
        return forms.answered(receipt, moment.view, moment.questions, self._base)


def _elicited(shown: str, response: Any) -> protocol.ElicitResult:
    try:
        return protocol.ElicitResult.model_validate(response)
    except ValidationError as error:
        faults = at_pointer(error, response)
        raise invalid(
            [{**each, "pointer": f"/{shown}{each['pointer']}"} for each in faults]
        ) from error
