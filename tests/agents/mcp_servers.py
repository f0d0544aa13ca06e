"""A server of tools for tests, on standard input and output or over HTTP.

    python mcp_servers.py stdio FOLDER [--older]
    python mcp_servers.py http FOLDER [--older] [--forgetful] [--stateless] [--token TOKEN] [--port PORT]
    python mcp_servers.py forks SOCKET

The tools note what they did in the file `deeds` of the folder, one deed a line. Over HTTP, the server
takes the given port, or a free one, and prints it. `--forgetful`: after a restart, the server rejects a
state that it returned before. `--older`: the server speaks only the protocols of 2025. `--stateless`:
the server keeps no sessions. The third form forks a server, started as in one of the first two, for
each `mcp_launcher.py`. If the folder has a file `status`, the HTTP server answers with that status.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import sys
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import anyio
import uvicorn
from mcp import UrlElicitationRequiredError
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.resolve import Elicit, Resolve
from mcp.server.request_state import RequestStateSecurity
from mcp.server.runner import serve_loop
from mcp.server.stdio import stdio_server
from mcp_types import (
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    InputRequiredResult,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, NaiveDatetime
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send


class Sure(BaseModel):
    sure: bool


class City(BaseModel):
    city: str


class Drink(BaseModel):
    drink: str


async def question() -> Elicit[Sure]:
    return Elicit("Really?", Sure)


def server_of(  # noqa: PLR0915 - one tool after the other
    folder: Path, security: RequestStateSecurity | None
) -> MCPServer:
    server = MCPServer("tools-for-tests", request_state_security=security)

    def deed(text: str) -> None:
        with (folder / "deeds").open("a", encoding="utf-8") as file:
            file.write(f"{text}\n")

    @server.tool()
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool()
    def book(at: NaiveDatetime, sure: bool = True, spell: timedelta = timedelta(0)) -> str:
        """Book a room."""
        return f"{at} {sure} {spell}"

    @server.tool()
    def who() -> int:
        """Return the number of the process."""
        return os.getpid()

    @server.tool()
    def variable(name: str) -> str:
        """Return a variable of the environment, or the folder in which the process runs."""
        return str(Path.cwd()) if name == "PWD_OF_TEST" else os.environ.get(name, "not set")

    @server.tool()
    async def slow(seconds: float) -> str:
        """Take a while."""
        deed("slow began")
        try:
            await anyio.sleep(seconds)
        except anyio.get_cancelled_exc_class():
            deed("slow was stopped")
            raise
        return "done"

    @server.tool()
    async def transfer(amount: int, ctx: Context) -> str:
        """Ask, then act."""
        answer = await ctx.elicit(f"Transfer {amount}?", Sure)
        if answer.action != "accept":
            return f"not transferred: {answer.action}"
        if not answer.data.sure:
            return "not transferred: not sure"
        deed(f"transferred {amount}")
        return "transferred"

    @server.tool()
    async def hasty(ctx: Context) -> str:
        """Act, then ask."""
        deed("acted")
        answer = await ctx.elicit("Was that right?", Sure)
        return answer.action

    @server.tool()
    async def stubborn(ctx: Context) -> str:
        """Ask, and ignore a cancellation."""
        with anyio.CancelScope(shield=True):
            answer = await ctx.elicit("Well?", Sure)
            deed("went on")
        return answer.action

    @server.tool()
    async def dinner(ctx: Context) -> str:
        """Ask twice, one after the other."""
        city = await ctx.elicit("Which city?", City)
        drink = await ctx.elicit("Which drink?", Drink)
        if city.action != "accept" or drink.action != "accept":
            return "none"
        return f"{drink.data.drink} in {city.data.city}"

    @server.tool()
    async def moody(ctx: Context) -> str:
        """Ask with the text of the file `words`."""
        words = (folder / "words").read_text(encoding="utf-8")
        answer = await ctx.elicit(words, Sure)
        return f"{words} {answer.action}"

    @server.tool()
    async def sign_in(ctx: Context) -> str:
        """Ask a person to visit a page."""
        answer = await ctx.elicit_url("Sign in", "https://example.org/sign-in", "1")
        return answer.action

    @server.tool()
    async def gated() -> str:
        """Refuse the call until a person has visited a page."""
        if not (folder / "been-there").exists():
            raise UrlElicitationRequiredError(
                [
                    ElicitRequestURLParams(
                        message="Allow it first",
                        url="https://example.org/allow",
                        elicitation_id="1",
                    )
                ]
            )
        return "allowed"

    @server.tool()
    async def reserve(ctx: Context) -> str | InputRequiredResult:
        """Act, ask two things at once, and act again; the state says what was done."""
        answers = ctx.input_responses
        if answers is None:
            deed("reserved")
            return InputRequiredResult(
                input_requests={
                    "seat": ElicitRequest(params=_form("Which seat?", "seat")),
                    "meal": ElicitRequest(params=_form("Which meal?", "meal")),
                },
                request_state="reservation 7",
            )
        seat, meal = answers["seat"], answers["meal"]
        assert isinstance(seat, ElicitResult)
        assert isinstance(meal, ElicitResult)
        deed(f"paid for {ctx.request_state}")
        return f"{seat.content} {meal.content}"

    @server.tool()
    async def three_times(ctx: Context) -> str | InputRequiredResult:
        """Ask the same thing three times, one after the other."""
        heard = ctx.request_state or ""
        if ctx.input_responses is not None:
            answer = ctx.input_responses["again"]
            assert isinstance(answer, ElicitResult)
            heard += str((answer.content or {}).get("word"))
        if len(heard) == 3:
            return heard
        question = ElicitRequest(params=_form("A letter?", "word"))
        return InputRequiredResult(input_requests={"again": question}, request_state=heard)

    @server.tool()
    async def patient(ctx: Context) -> str | InputRequiredResult:
        """Return three states without a question, and then the result."""
        count = int(ctx.request_state or "0")
        return "done" if count == 3 else InputRequiredResult(request_state=str(count + 1))

    @server.tool()
    async def declared(sure: Annotated[Sure, Resolve(question)]) -> str:
        """Ask by a parameter that the library resolves."""
        deed("declared")
        return f"sure: {sure.sure}"

    @server.tool()
    def crash() -> str:
        """End the process."""
        deed("crashed")
        os._exit(3)

    @server.tool()
    def picture(size: int) -> Image:
        """Return a picture of so many bytes."""
        return Image(data=b"\x89PNG" + bytes(size - 4), format="png")

    @server.tool()
    def long(size: int) -> str:
        """Return a text of so many bytes."""
        return "x" * size

    @server.tool()
    def fail() -> str:
        """Fail."""
        message = "there is no money left"
        raise ValueError(message)

    @server.tool()
    async def grow() -> str:
        """Add a tool to the list."""
        server.add_tool(lambda: "new", name="grown", description="Was not there before.")
        return "grown"

    return server


def _form(message: str, field: str) -> ElicitRequestFormParams:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {field: {"type": "string"}},
        "required": [field],
    }
    return ElicitRequestFormParams(message=message, requested_schema=schema)


class Guarded:
    def __init__(self, app: ASGIApp, token: str | None, status: Path, *, older: bool) -> None:
        self.app, self.token, self.status, self.older = app, token, status, older

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            if self.status.exists():
                status = int(self.status.read_text(encoding="utf-8"))
                await PlainTextResponse("not now", status)(scope, receive, send)
                return
            headers = Request(scope).headers
            if self.older and headers.get("mcp-protocol-version") in MODERN_PROTOCOL_VERSIONS:
                await PlainTextResponse("unsupported version", 400)(scope, receive, send)
                return
            given = headers.get("authorization")
            if self.token is not None and given != f"Bearer {self.token}":
                await PlainTextResponse("who are you?", 401)(scope, receive, send)
                return
        await self.app(scope, receive, send)


async def serve(server: MCPServer, given: argparse.Namespace) -> None:
    app = Guarded(
        server.streamable_http_app(stateless_http=given.stateless),
        given.token,
        given.folder / "status",
        older=given.older,
    )
    with socket.create_server(("127.0.0.1", given.port)) as listening:
        print(listening.getsockname()[1], flush=True)
        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
        await uvicorn.Server(config).serve(sockets=[listening])


async def serve_older(server: MCPServer) -> None:
    lowlevel = server._lowlevel_server
    async with stdio_server() as (read, write), lowlevel.lifespan(lowlevel) as lifespan:
        await serve_loop(lowlevel, read, write, lifespan_state=lifespan)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=["stdio", "http"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--older", action="store_true")
    parser.add_argument("--forgetful", action="store_true")
    parser.add_argument("--stateless", action="store_true")
    parser.add_argument("--token")
    parser.add_argument("--port", type=int, default=0)
    given = parser.parse_args(arguments)
    security = None if given.forgetful else RequestStateSecurity(keys=["k" * 32])
    server = server_of(given.folder, security)
    if given.way == "http":
        asyncio.run(serve(server, given))
    elif given.older:
        asyncio.run(serve_older(server))
    else:
        server.run()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["forks", path]:
            # Only this form has the folder of `forked` on its import path.
            from forked import fork_for_each

            fork_for_each(Path(path), main)
        case arguments:
            main(arguments)
