"""docs/concepts/security.md names the capability of every call, and the API requires just that one."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import pytest_asyncio
import typer
from fastapi import FastAPI
from pages import read
from stack import problem
from temporalio.client import Client as TemporalClient
from typer.core import TyperGroup

from abeyance import Client
from abeyance.api.app import create_app
from abeyance.cli import main
from abeyance.settings import Settings

_PAGE = read("concepts/security.md")
_TABLE = _PAGE.partition("\n## Every call")[2]
_UNDESCRIBED = {
    "GET /openapi.json",
    "GET /",
    "GET /inbox",
    "POST /codec/decode",
    "POST /codec/encode",
    "POST /mcp",
}
"""Calls that the OpenAPI document leaves out: the document, pages, and protocols with their own."""
_OF_THE_RUN = "guarded_by"
_TOKEN = "nobodys"
_NO_API = {"abeyance dev", "abeyance graph check"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A call of the table, and what it requires of every caller."""

    call: str
    takes: tuple[str, ...]
    needs_token: bool

    def __str__(self) -> str:
        return self.call


def rows() -> Iterator[Row]:
    for calls, takes in re.findall(r"^\| ([^|]+) \|[^|]*\| ([^|]+) \|", _TABLE, re.MULTILINE):
        capabilities = tuple(re.findall(r"`([\w:]+)`", takes))
        needs_token = bool(capabilities) or takes.startswith("a token")
        for call in re.findall(r"`([A-Z]+ /[^`]*)`", calls):
            yield Row(call=call, takes=capabilities, needs_token=needs_token)


_ROWS = [*rows()]


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Return settings with everything on, and a token that allows nothing."""
    tokens = tmp_path_factory.mktemp("tokens") / "tokens.json"
    hashed = hashlib.sha256(_TOKEN.encode()).hexdigest()
    grant = {"subject": "nobody", "sha256": hashed, "capabilities": []}
    tokens.write_text(json.dumps([grant]))
    key = base64.b64encode(secrets.token_bytes(32)).decode()
    return Settings(tokens_file=tokens, encryption_keys=f"k1:{key}", mcp="all")


@pytest_asyncio.fixture(scope="module")
async def app(settings: Settings) -> FastAPI:
    # Nobody listens at this address: the API refuses these calls before it asks Temporal.
    temporal = await TemporalClient.connect("127.0.0.1:1", lazy=True)
    return create_app(settings, {}, Client(temporal))


@pytest.fixture(scope="module")
def lonely(settings: Settings) -> FastAPI:
    """Return a service that has not found its Temporal."""
    return create_app(settings, {})


def described(app: FastAPI) -> dict[str, dict[str, Any]]:
    """Return the calls of the OpenAPI document."""
    return {
        f"{method.upper()} {path}": call
        for path, calls in app.openapi()["paths"].items()
        for method, call in calls.items()
    }


def example_of(app: FastAPI, call: str) -> Any:
    """Return a body that the call needs, from the document; None if it needs none."""
    document = app.openapi()
    body = described(app).get(call, {}).get("requestBody", {})
    if not body.get("required"):
        return None
    (form,) = body["content"].values()
    schema = form["schema"]
    if (reference := schema.get("$ref")) is not None:
        schema = document["components"]["schemas"][reference.rpartition("/")[2]]
    named = [each["value"] for each in form.get("examples", {}).values()]
    return [*form["schema"].get("examples", ()), *schema.get("examples", ()), *named][0]


async def asked(app: FastAPI, call: str, *, token: str | None = None) -> httpx.Response:
    """Make a call, and return its answer."""
    method, path = call.split()
    path = path.replace("{interrupt_id}", "refund-4711.b276f6238dab3ba5")
    path = re.sub(r"\{\w+\}", "refund-4711", path)
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    body = None if method == "GET" else example_of(app, call) or {}
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as http:
        return await http.request(method, path, json=body, headers=headers)


async def test_every_call_of_the_api_stands_in_the_table_once(app: FastAPI) -> None:
    calls = [row.call for row in _ROWS]

    assert len(calls) == len({*calls})
    assert {*calls} == {*described(app)} | _UNDESCRIBED


@pytest.mark.parametrize(
    "row", [row for row in _ROWS if row.takes and _OF_THE_RUN not in row.takes], ids=str
)
async def test_a_caller_without_capabilities_is_refused_as_the_table_says(
    app: FastAPI, row: Row
) -> None:
    refused = problem(await asked(app, row.call, token=_TOKEN), 403, "capability_required")

    assert (refused["capability"], refused["capabilities"]) == (row.takes[0], [*row.takes])


@pytest.mark.parametrize("row", [row for row in _ROWS if row.needs_token], ids=str)
async def test_a_caller_without_a_token_is_refused(app: FastAPI, row: Row) -> None:
    problem(await asked(app, row.call), 401, "unauthenticated")


@pytest.mark.parametrize("row", [row for row in _ROWS if not row.needs_token], ids=str)
async def test_calls_without_capabilities_need_no_token(lonely: FastAPI, row: Row) -> None:
    answer = await asked(lonely, row.call)

    # Everybody may learn that Temporal is not there.
    assert answer.status_code == 503 if row.call == "GET /readyz" else answer.status_code < 400


def test_changes_of_course_require_control_and_the_runs_guards() -> None:
    course = {row.call: row.takes for row in _ROWS if _OF_THE_RUN in row.takes}

    assert course == {
        "PATCH /runs/{run_id}/values": ("runs:control", _OF_THE_RUN),
        "PATCH /interrupts/{interrupt_id}": ("runs:control", _OF_THE_RUN),
        "POST /runs/{run_id}/migrate": ("runs:control", _OF_THE_RUN),
        "POST /runs/{run_id}/rewind": ("runs:control", _OF_THE_RUN),
    }


def commands(group: TyperGroup, *before: str) -> Iterator[str]:
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from commands(command, *before, name)
        else:
            yield " ".join((*before, name))


def test_every_command_stands_in_the_table() -> None:
    told = {line.partition(" --")[0] for line in re.findall(r"`(abeyance [a-z][^`]*)`", _TABLE)}

    assert told == {*commands(typer.main.get_group(main.commands), "abeyance")}
    assert all(f"`{name}`" in _TABLE.rpartition("|")[2] for name in _NO_API)
