"""Declarations of MCP servers, and the mistakes that are refused at once."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from abeyance.contrib.mcp.client.server import McpServer

URL = "https://example.org/mcp"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "exactly one of command="),
        ({"command": ["a"], "url": URL}, "exactly one of command="),
        ({"command": "python server.py"}, "use a list such as"),
        ({"command": []}, "use a list such as"),
        ({"command": ["a"], "headers": {"X": "1"}}, "takes no headers"),
        ({"command": ["a"], "token_from": "T"}, "takes no headers"),
        ({"url": "example.org"}, "https://"),
        ({"url": "ftp://example.org"}, "https://"),
        ({"url": "https://me:secret@example.org"}, "token_from="),
        ({"url": URL, "env": {"A": "1"}}, "only with a command"),
        ({"url": URL, "headers": {"AUTHORIZATION": "Bearer x"}}, "token_from="),
        ({"url": URL, "timeout": 0}, "timeout=0"),
        ({"url": URL, "connect_timeout": "soon"}, "'soon' is not a duration"),
        ({"url": URL, "retries": -1}, "retries=-1"),
        ({"url": URL, "connections": 0}, "connections=0"),
        ({"url": URL, "tools": "add"}, "list of names"),
        ({"url": URL, "decisions": ["maybe"]}, "decisions=: 'maybe' given"),
    ],
)
def test_a_declaration_that_means_nothing_is_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told) as caught:
        McpServer(**given)
    assert "secret" not in str(caught.value).replace("a secret", "")


def test_a_server_is_named_by_what_it_is_made_of() -> None:
    assert McpServer(url="https://example.org:8443/mcp?key=1").title == "example.org:8443"
    assert McpServer(command=["/usr/bin/github-server", "--all"]).title == "github-server"
    assert McpServer(name="hub", command=["x"]).title == "hub"


def test_only_the_way_to_a_server_decides_who_shares_its_connections() -> None:
    one = McpServer(url=URL, tools=["a"], prefix="a_", approve=True, timeout="5m", retries=0)
    assert one.key == McpServer(url=URL).key
    assert one.key != McpServer(name="other", url=URL).key
    assert one.key != McpServer(url=URL, headers={"X-Team": "a"}).key
    assert one.key != McpServer(url=URL, token_from="T").key


def test_approve_decides_by_the_tool_and_its_arguments() -> None:
    server = McpServer(url=URL, approve=lambda tool, args: tool == "pay" and args["amount"] > 10)
    assert server.needs_approval("pay", {"amount": 11})
    assert not server.needs_approval("pay", {"amount": 1})
    assert not server.needs_approval("look", {})
    assert McpServer(url=URL, approve=True).needs_approval("look", {})
    assert not McpServer(url=URL).needs_approval("look", {})


def test_declaring_a_server_imports_nothing_heavy() -> None:
    code = (
        "import sys; from abeyance import McpServer; McpServer(command=['x']); "
        "print(sorted({'mcp', 'mcp_types', 'httpx2', 'anyio', 'fastapi'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
