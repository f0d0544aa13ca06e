"""Runs over HTTP: the same handle as over Temporal, for programs that have an API and a token.

    async with HttpClient("https://runs.example.org", token) as client:
        started = await client.runs.start("refund", {"order_id": "A-7"})
        run = client.run(started.run_id)
        await run.wait(until=frozenset({"awaiting-input"}))
        await run.respond(response={"approved": True})

It neither needs nor imports Temporal. The command line uses it.
"""

from typing import TYPE_CHECKING, Any

from abeyance.http.connection import ApiProblem as ApiProblem
from abeyance.http.connection import ApiRefusal as ApiRefusal
from abeyance.http.connection import ApiUnavailable as ApiUnavailable
from abeyance.http.connection import Connection as Connection

if TYPE_CHECKING:
    from abeyance.http.client import HttpClient as HttpClient
    from abeyance.http.run import HttpRun as HttpRun

__all__ = [
    "ApiProblem",
    "ApiRefusal",
    "ApiUnavailable",
    "Connection",
    "HttpClient",
    "HttpRun",
]


def __getattr__(name: str) -> Any:
    # The command line needs the connection only, and starts faster without the models of the client.
    if name not in ("HttpClient", "HttpRun"):
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    from abeyance.http import client  # noqa: PLC0415

    return getattr(client, name)
