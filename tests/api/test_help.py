"""`help(...)` on a client, a part of it or a run lists each operation with its types and meaning."""

from __future__ import annotations

import inspect
import pydoc
import re

import pytest

from abeyance import RunHandle, testing
from abeyance.client import Client, TemporalRun
from abeyance.http import HttpClient, HttpRun
from abeyance.http.connection import Connection

PARTS = {
    name: type(part)
    for name, part in vars(HttpClient("http://127.0.0.1:1")).items()
    if not name.startswith("_") and not isinstance(part, Connection)
}
"""The parts of a client, by their names."""


def listed(kind: type) -> dict[str, str]:
    """Return the signatures that `help` shows for a class, by operation."""
    text = pydoc.plain(pydoc.render_doc(kind))
    return dict(re.findall(r"^ \|  (?:async )?([a-z]\w*)(\(.*)$", text, re.MULTILINE))


@pytest.mark.parametrize(
    "kind",
    [Client, HttpClient, *PARTS.values(), RunHandle, TemporalRun, HttpRun, testing.InMemoryRun],
)
def test_help_shows_the_types_and_the_meaning_of_each_operation(kind: type) -> None:
    shown = listed(kind)
    operations = {
        name: function
        for name, function in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }

    assert operations
    for name, function in operations.items():
        _, *taken = inspect.signature(function).parameters.values()
        assert ") -> " in shown[name], name
        assert all(each.annotation is not each.empty for each in taken), (name, taken)
        assert inspect.getdoc(getattr(kind, name)), name


@pytest.mark.parametrize("kind", [TemporalRun, HttpRun, testing.InMemoryRun])
def test_help_on_each_handle_of_a_run_shows_the_same_operations(kind: type) -> None:
    assert listed(RunHandle).keys() <= listed(kind).keys()


@pytest.mark.parametrize("kind", [Client, HttpClient])
def test_help_on_a_client_names_its_parts(kind: type) -> None:
    assert {"runs", "inbox", "grants"} <= {*PARTS}
    assert {*PARTS} <= {*re.findall(r"`(\w+)`", inspect.getdoc(kind) or "")}
