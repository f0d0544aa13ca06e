"""One tool call: its requests to the server, and the elicitations in between.

A server elicits in one of three ways, and the caller's task answers each:

- by a request to the client during the call (protocols of 2025): without an answer, the call is cancelled
  and repeated later;
- by the error "URL elicitation required" (2025-11-25): the call is repeated after the answer;
- by the response `input_required` with questions and a state (2026-07-28): the next request returns
  answers and state, from any process at any time. If the server rejects the state, the call starts from
  its beginning.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import mcp_types as types
from mcp import MCPError, UrlElicitationRequiredError
from pydantic import ValidationError

from abeyance.authoring.interrupts import Suspended
from abeyance.contrib.mcp.client.elicitation import Answer, Ask, ElicitRequest, Record, Round
from abeyance.contrib.mcp.client.errors import McpDown, McpToolError, McpUnusable, of_status
from abeyance.contrib.mcp.client.server import McpResult, McpServer
from abeyance.core.json import Json, size
from abeyance.duration import seconds

if TYPE_CHECKING:
    from abeyance.contrib.mcp.client.connection import Connection, Inbox, Pool

_POLL_INTERVALS: Final = (0.05, 1.0)
"""First and maximum seconds between requests to a server that is not done and asks nothing."""
_NO_BACK_CHANNEL: Final = "no back-channel"
"""In the error of a server for protocols of 2025 that elicits in a newer one."""

_DROPPED_KEYS: Final = ("_meta", "annotations")


async def call_tool(
    server: McpServer,
    pool: Pool,
    tool: str,
    arguments: Mapping[str, Any],
    *,
    record: Record,
    ask: Ask,
) -> McpResult:
    """Call a tool. Raises McpDown, McpUnusable, McpToolError, and what `ask` raises."""
    record.handshake = record.handshake or tool in pool.handshake_tools
    # Every idle connection may be older than the last restart of the server, and the tool may turn out to
    # need an older protocol.
    for _ in range(server.connections + 2):
        try:
            async with pool.lease(
                seconds(server.timeout), handshake=record.handshake
            ) as connection:
                call = _Call(server, connection, tool, arguments, record=record, ask=ask)
                return _as_result(await call.run(), server, tool)
        except _SessionLost:
            continue
        except _HandshakeNeeded:
            record.handshake = True
            pool.handshake_tools.add(tool)
    raise McpDown(f"{server.title} ends each session at its first call")


class _SessionLost(Exception):
    """The server has lost the session, and rejected the request unread."""


class _HandshakeNeeded(Exception):
    """The tool tried to elicit by a request to the client, which this protocol does not have."""


class _StateRefused(Exception):
    """The server rejects its own state, or the answers with it."""


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
        self._remaining = seconds(server.timeout)
        self._label = f"the tool {tool!r} of {server.title}"

    async def run(self) -> types.CallToolResult:
        resumed = self._record.resumed() if self._connection.stateless else None
        if resumed is not None:
            round_, names = resumed
            # The server rejects a state that has expired or was sealed with a lost key.
            with suppress(_StateRefused):
                responses = await self._responses(round_, names)
                return await self._run_rounds(responses, round_.state)
        self._record.restart()
        try:
            return await self._run_rounds(None, None)
        except _StateRefused as error:
            message = f"{self._label} rejects the answers that it asked for: {error}"
            raise McpToolError("refused", message) from error

    async def _run_rounds(
        self, responses: types.InputResponses | None, state: str | None
    ) -> types.CallToolResult:
        pause, max_pause = _POLL_INTERVALS
        while True:
            outcome = await self._send(responses, state)
            if outcome is None:
                continue
            if isinstance(outcome, types.CallToolResult):
                return outcome
            requests = {
                key: self._elicit_request(request)
                for key, request in (outcome.input_requests or {}).items()
            }
            state, responses = outcome.request_state, None
            if requests:
                round_ = Round(state=state, requests=requests)
                responses = await self._responses(round_, self._record.reached(round_))
                pause = _POLL_INTERVALS[0]
            else:
                await self._with_timeout(asyncio.sleep(pause))
                pause = min(2 * pause, max_pause)

    async def _responses(self, round_: Round, names: Mapping[str, str]) -> types.InputResponses:
        answers = await self._answers(round_.requests, names)
        return {key: _result(answer) for key, answer in answers.items()}

    async def _answers(
        self, requests: Mapping[str, ElicitRequest], names: Mapping[str, str]
    ) -> dict[str, Answer]:
        answers: dict[str, Answer] = {}
        suspensions: list[Suspended] = []
        for key, request in requests.items():
            try:
                answers[key] = await self._record.answer(names[key], request, self._ask)
            except Suspended as suspended:
                # All questions of a round are opened together.
                suspensions.append(suspended)
        if len(suspensions) == 1:
            raise suspensions[0]
        if suspensions:
            raise Suspended(
                [asked for one in suspensions for asked in one.asked], suspensions[-1].state
            )
        return answers

    async def _ask_urls(self, error: MCPError) -> None:
        try:
            elicitations = UrlElicitationRequiredError.from_error(error.error).elicitations
        except ValidationError as invalid:
            message = f"{self._label} sent an invalid elicitation: {invalid}"
            raise McpToolError("bad_elicitation", message) from invalid
        requests = {str(number): _request_of(params) for number, params in enumerate(elicitations)}
        names = {key: self._record.name_of(request) for key, request in requests.items()}
        for key, answer in (await self._answers(requests, names)).items():
            if answer.declined is not None:
                message = (
                    f"{self._label} sent an elicitation that is not allowed: {answer.declined}"
                )
                raise McpToolError("bad_elicitation", message)
            if answer.action != "accept":
                message = f"{self._label} needs a person to open {requests[key].url}, who declined"
                raise McpToolError("declined", message)

    async def _send(
        self, responses: types.InputResponses | None, state: str | None
    ) -> types.CallToolResult | types.InputRequiredResult | None:
        """Return the server's response; None if the request must be repeated after a url was opened."""
        for has_relisted in (False, True):
            try:
                return await self._request(responses, state)
            except MCPError as error:
                if error.code == types.URL_ELICITATION_REQUIRED:
                    await self._ask_urls(error)
                    return None
                if error.code == types.INVALID_PARAMS and state is not None:
                    raise _StateRefused(str(error)) from error
                if error.code != types.HEADER_MISMATCH or has_relisted:
                    raise self._fault(error) from error
            except ValidationError as error:
                raise McpUnusable(f"{self._label} sent an invalid response: {error}") from error
            except RuntimeError as error:
                message = f"{self._label} returned what its output schema does not allow: {error}"
                raise McpToolError("refused", message) from error
            # The server has a newer definition of the tool.
            await self._with_timeout(self._connection.list_tools())
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
                    # Nothing is lost: a received question is answered below, or the call is abandoned.
                    question.cancel()
                if request.done():
                    return request.result()
                params, answer = question.result()
                elicitation = _request_of(params)
                name = self._record.name_of(elicitation)
                response = await self._record.answer(name, elicitation, self._ask)
                if not answer.done():
                    answer.set_result(_result(response))
        finally:
            if not request.done():
                # The library cancels the call on the server.
                self._connection.abandoned = True
                request.cancel()
                await asyncio.gather(request, return_exceptions=True)

    async def _wait(self, request: asyncio.Task[Any], question: asyncio.Task[Any]) -> None:
        """Wait until the server answers or elicits. Only this time counts towards the timeout."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.wait(
            {request, question}, timeout=max(0.0, self._remaining), return_when="FIRST_COMPLETED"
        )
        self._remaining -= loop.time() - began
        if not request.done() and not question.done():
            raise self._timeout_error()

    async def _with_timeout(self, work: Any) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(max(0.0, self._remaining)):
                await work
        except TimeoutError as error:
            raise self._timeout_error() from error
        self._remaining -= loop.time() - began

    def _timeout_error(self) -> McpDown:
        limit = seconds(self._server.timeout)
        return McpDown(f"{self._label} did not answer within {limit:g} s", sent=True)

    def _elicit_request(self, request: types.InputRequest) -> ElicitRequest:
        if isinstance(request, types.ElicitRequest):
            return _request_of(request.params)
        message = f"{self._label} requests {request.method!r}, and only elicitations are supported"
        raise McpToolError("bad_elicitation", message)

    def _fault(self, error: MCPError) -> Exception:
        status = self._connection.status
        if status == 404 and error.code == types.INVALID_REQUEST and not self._connection.stateless:  # noqa: PLR2004
            self._connection.mark_ended()
            return _SessionLost()
        if error.code == types.CONNECTION_CLOSED or not self._connection.alive:
            self._connection.mark_ended()
            return McpDown(f"{self._label}: the server died during the call: {error}", sent=True)
        by_status = of_status(status, f"{self._label} is refused")
        if by_status is not None and error.code == types.INTERNAL_ERROR:
            return by_status
        if self._connection.stateless and _NO_BACK_CHANNEL in str(error):
            return _HandshakeNeeded()
        return McpToolError("refused", f"{self._label} was refused: {error} (code {error.code})")


def _request_of(params: types.ElicitRequestParams) -> ElicitRequest:
    if isinstance(params, types.ElicitRequestURLParams):
        return ElicitRequest(message=params.message, url=params.url)
    # Some protocol versions drop these two keys, so a digest must not depend on them.
    schema = {
        key: value
        for key, value in params.requested_schema.items()
        if key not in {"$schema", "title"}
    }
    return ElicitRequest(message=params.message, requested_schema=schema)


def _result(answer: Answer) -> types.ElicitResult:
    content = None if answer.action != "accept" or answer.content is None else dict(answer.content)
    meta = None if answer.declined is None else {"abeyance/reason": answer.declined}
    return types.ElicitResult(action=answer.action, content=content, _meta=meta)


def _as_result(result: types.CallToolResult, server: McpServer, tool: str) -> McpResult:
    """Return the result as JSON. Binary data of a too large result is replaced by a note.

    Raises McpToolError if the result is too large even without binary data.
    """
    items = [_item(each) for each in result.content]
    structured = result.structured_content
    if not items and structured is not None:
        items = [{"type": "text", "text": json.dumps(structured, ensure_ascii=False)}]
    if size(items) > server.max_result:
        items = [_without_data(each) for each in items]
    if structured is not None and size(structured) > server.max_result:
        structured = None
    bytes_ = size(items)
    if bytes_ > server.max_result:
        message = (
            f"the tool {tool!r} of {server.title} returned {bytes_} bytes of at most "
            f"{server.max_result}: ask it for less"
        )
        raise McpToolError("result_too_large", message)
    return McpResult(content=items, structured=structured, is_error=result.is_error)


def _item(block: types.ContentBlock) -> dict[str, Json]:
    item = block.model_dump(by_alias=True, mode="json", exclude_none=True)
    return {key: value for key, value in item.items() if key not in _DROPPED_KEYS}


def _without_data(item: dict[str, Json]) -> dict[str, Json]:
    for holder, key in ((item, "data"), (item.get("resource"), "blob")):
        if isinstance(holder, dict) and key in holder:
            reduced = {name: value for name, value in holder.items() if name != key}
            reduced["left_out"] = f"{len(holder[key])} characters of base64: too large for a result"
            return reduced if holder is item else {**item, "resource": reduced}
    return item
