"""One call of a tool: the requests that it takes, and the people that the server asks in between.

A server asks in one of three ways, and each is answered in the task of the caller:

- with a request of its own, while ours is open (protocols of 2025): if there is no answer, ours is
  cancelled, and the call is made again later;
- with the error "URL elicitation required" (2025-11-25): it wants the call to be made again;
- by answering `input_required` with questions and a state (2026-07-28): the next request takes
  answers and state back, from whatever process and after whatever time, as long as the server knows the
  state as its own. If it does not, the call is made again from its beginning.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import mcp_types as types
from mcp import MCPError, UrlElicitationRequiredError
from pydantic import ValidationError

from abeyance.authoring.interrupts import Suspended
from abeyance.duration import seconds
from abeyance.mcp.elicitation import Answer, Ask, Record, Round, Wanted
from abeyance.mcp.errors import McpDown, McpToolError, McpUnusable, of_status
from abeyance.mcp.transport import result_of

if TYPE_CHECKING:
    from abeyance.mcp.connection import Connection, Inbox
    from abeyance.mcp.pool import Pool
    from abeyance.mcp.server import McpResult, McpServer

_POLLED: Final = (0.05, 1.0)
"""Seconds between requests to a server that is not done and asks nothing: the first, and the most."""
_NO_WAY_BACK: Final = "no back-channel"
"""What servers say that were written for the protocol of 2025, are asked in a later one, and elicit."""


async def called(
    server: McpServer,
    pool: Pool,
    tool: str,
    arguments: Mapping[str, Any],
    *,
    record: Record,
    ask: Ask,
) -> McpResult:
    """What the tool gave. Raises McpDown, McpUnusable, McpToolError, and what `ask` raises."""
    record.handshake = record.handshake or tool in pool.handshake_tools
    # Each idle connection may be of a time before the server was started anew; and once more if the tool
    # turns out to need an older protocol.
    for _ in range(server.connections + 2):
        try:
            async with pool.lease(
                seconds(server.timeout), handshake=record.handshake
            ) as connection:
                call = _Call(server, connection, tool, arguments, record=record, ask=ask)
                return result_of(await call.made(), server, tool)
        except _Forgotten:
            continue
        except _HandshakeNeeded:
            record.handshake = True
            pool.handshake_tools.add(tool)
    message = f"{server.title} ends its sessions as soon as they have begun"
    raise McpDown(message)


class _Forgotten(Exception):
    """The server does not know our session any more, and has refused the request unread."""


class _HandshakeNeeded(Exception):
    """The tool has tried to ask with a request of its own, which this protocol does not have."""


class _StateRefused(Exception):
    """The server does not take back the state that it gave, or the answers with it."""


class _Call:
    def __init__(
        self,
        server: McpServer,
        connection: Connection,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        record: Record,
        ask: Ask,
    ) -> None:
        self._server = server
        self._connection = connection
        self._tool = tool
        self._arguments = dict(arguments)
        self._record = record
        self._ask = ask
        self._left = seconds(server.timeout)
        self._told = f"the tool {tool!r} of {server.title}"

    async def made(self) -> types.CallToolResult:
        resumed = self._record.resumed() if self._connection.stateless else None
        if resumed is not None:
            round_, names = resumed
            # It is refused where it is older than the server allows, or sealed with a key that is gone.
            with suppress(_StateRefused):
                responses = await self._responses(round_, names)
                return await self._from(responses, round_.state)
        self._record.again()
        try:
            return await self._from(None, None)
        except _StateRefused as error:
            message = f"{self._told} does not take what it asked for: {error}"
            raise McpToolError("refused", message) from error

    async def _from(
        self, responses: types.InputResponses | None, state: str | None
    ) -> types.CallToolResult:
        pause, most = _POLLED
        while True:
            outcome = await self._sent(responses, state)
            if outcome is None:
                continue
            if isinstance(outcome, types.CallToolResult):
                return outcome
            wanted = {
                key: self._wanted(each) for key, each in (outcome.input_requests or {}).items()
            }
            state, responses = outcome.request_state, None
            if wanted:
                round_ = Round(state=state, wanted=wanted)
                responses = await self._responses(round_, self._record.at(round_))
                pause = _POLLED[0]
            else:
                await self._within(asyncio.sleep(pause))
                pause = min(2 * pause, most)

    async def _responses(self, round_: Round, names: Mapping[str, str]) -> types.InputResponses:
        answers = await self._answers(round_.wanted, names)
        return {key: _result(answer) for key, answer in answers.items()}

    async def _answers(
        self, wanted: Mapping[str, Wanted], names: Mapping[str, str]
    ) -> dict[str, Answer]:
        answers: dict[str, Answer] = {}
        open_: list[Suspended] = []
        for key, each in wanted.items():
            try:
                answers[key] = await self._record.answered(names[key], each, self._ask)
            except Suspended as suspended:
                # What was asked beside it is shown to people at the same time.
                open_.append(suspended)
        if len(open_) == 1:
            raise open_[0]
        if open_:
            raise Suspended([each for one in open_ for each in one.asked], open_[-1].state)
        return answers

    async def _visited(self, error: MCPError) -> None:
        try:
            asked = UrlElicitationRequiredError.from_error(error.error).elicitations
        except ValidationError as fault:
            message = f"{self._told} asks in a way that is no elicitation: {fault}"
            raise McpToolError("bad_elicitation", message) from fault
        wanted = {str(number): _put(each) for number, each in enumerate(asked)}
        names = {key: self._record.named(each) for key, each in wanted.items()}
        for key, answer in (await self._answers(wanted, names)).items():
            if answer.declined is not None:
                message = f"{self._told} asks what no server may ask: {answer.declined}"
                raise McpToolError("bad_elicitation", message)
            if answer.action != "accept":
                message = (
                    f"{self._told} needs a person to open {wanted[key].url}, who did not want to"
                )
                raise McpToolError("declined", message)

    async def _sent(
        self, responses: types.InputResponses | None, state: str | None
    ) -> types.CallToolResult | types.InputRequiredResult | None:
        """What the server answers; None if it now has what it needed, and is to be asked again."""
        for listed in (False, True):
            try:
                return await self._request(responses, state)
            except MCPError as error:
                if error.code == types.URL_ELICITATION_REQUIRED:
                    await self._visited(error)
                    return None
                if error.code == types.INVALID_PARAMS and state is not None:
                    raise _StateRefused(str(error)) from error
                if error.code != types.HEADER_MISMATCH or listed:
                    raise self._fault(error) from error
            except ValidationError as error:
                message = f"{self._told} answered with what the protocol does not know: {error}"
                raise McpUnusable(message) from error
            except RuntimeError as error:
                message = f"{self._told} gave what is not what it says that it gives: {error}"
                raise McpToolError("refused", message) from error
            # It knows the tool in another form than we do.
            await self._within(self._connection.list_tools())
        raise AssertionError

    async def _request(
        self, responses: types.InputResponses | None, state: str | None
    ) -> types.CallToolResult | types.InputRequiredResult:
        inbox: Inbox = asyncio.Queue()
        self._connection.inbox = inbox
        request = asyncio.create_task(
            self._connection.session.call_tool(
                self._tool,
                self._arguments,
                input_responses=responses,
                request_state=state,
                allow_input_required=True,
            )
        )
        try:
            while True:
                question = asyncio.create_task(inbox.get())
                try:
                    await self._wait(request, question)
                finally:
                    # Nothing is lost: what it held is answered below, or the call is given up.
                    question.cancel()
                if request.done():
                    return request.result()
                params, answer = question.result()
                wanted = _put(params)
                name = self._record.named(wanted)
                found = await self._record.answered(name, wanted, self._ask)
                if not answer.done():
                    answer.set_result(_result(found))
        finally:
            if not request.done():
                # The library tells the server that the call is given up.
                self._connection.given_up = True
                request.cancel()
                await asyncio.gather(request, return_exceptions=True)

    async def _wait(self, request: asyncio.Task[Any], question: asyncio.Task[Any]) -> None:
        """Until the server answers or asks. Only this time counts: people take as long as they take."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.wait(
            {request, question}, timeout=max(0.0, self._left), return_when="FIRST_COMPLETED"
        )
        self._left -= loop.time() - began
        if not request.done() and not question.done():
            raise self._late()

    async def _within(self, work: Any) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(max(0.0, self._left)):
                await work
        except TimeoutError as error:
            raise self._late() from error
        self._left -= loop.time() - began

    def _late(self) -> McpDown:
        limit = seconds(self._server.timeout)
        return McpDown(f"{self._told} did not answer within {limit:g} s", sent=True)

    def _wanted(self, request: types.InputRequest) -> Wanted:
        if isinstance(request, types.ElicitRequest):
            return _put(request.params)
        message = f"{self._told} wants {request.method!r}, and only people are asked here"
        raise McpToolError("bad_elicitation", message)

    def _fault(self, error: MCPError) -> Exception:
        status = self._connection.status
        if status == 404 and error.code == types.INVALID_REQUEST and not self._connection.stateless:  # noqa: PLR2004
            self._connection.ended()
            return _Forgotten()
        if error.code == types.CONNECTION_CLOSED or not self._connection.alive:
            self._connection.ended()
            return McpDown(f"{self._told}: the server died in the middle: {error}", sent=True)
        by_status = of_status(status, f"{self._told} is refused")
        if by_status is not None and error.code == types.INTERNAL_ERROR:
            return by_status
        if self._connection.stateless and _NO_WAY_BACK in str(error):
            return _HandshakeNeeded()
        return McpToolError("refused", f"{self._told} was refused: {error} (code {error.code})")


def _put(params: types.ElicitRequestParams) -> Wanted:
    if isinstance(params, types.ElicitRequestURLParams):
        return Wanted(message=params.message, url=params.url)
    # Some versions of the protocol do not carry these two, and they ask nothing.
    schema = {
        key: value
        for key, value in params.requested_schema.items()
        if key not in {"$schema", "title"}
    }
    return Wanted(message=params.message, requested_schema=schema)


def _result(answer: Answer) -> types.ElicitResult:
    content = None if answer.action != "accept" or answer.content is None else dict(answer.content)
    why = None if answer.declined is None else {"abeyance/reason": answer.declined}
    return types.ElicitResult(action=answer.action, content=content, _meta=why)
