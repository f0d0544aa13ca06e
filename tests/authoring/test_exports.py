"""The public names, and what importing them costs."""

from __future__ import annotations

import ast
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import abeyance
from abeyance.client.client import Inbox
from abeyance.client.conversations import Conversations
from abeyance.client.runs import Runs

HEAVY = (
    "fastapi",
    "httpx",
    "opentelemetry",
    "pydantic_ai",
    "pydantic_settings",
    "sqlalchemy",
    "temporalio",
    "typer",
    "uvicorn",
    "yaml",
)


def test_every_public_name_is_seen_by_programs_that_read_the_source() -> None:
    assert abeyance.__file__
    tree = ast.parse(Path(abeyance.__file__).read_text(encoding="utf-8"))
    seen = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }

    assert {*abeyance.__all__} <= seen


def classes_of(hint: object) -> set[type]:
    """Return the classes of the package in a hint."""
    inner = {found for part in get_args(hint) for found in classes_of(part)}
    is_ours = isinstance(hint, type) and hint.__module__.startswith("abeyance.")
    return inner | {hint} if is_ours and isinstance(hint, type) else inner


@pytest.mark.parametrize(
    "part", [abeyance.Client, abeyance.RunHandle, abeyance.Context, Runs, Inbox, Conversations]
)
def test_types_returned_by_clients_and_contexts_are_public(part: type) -> None:
    public = {getattr(abeyance, name) for name in abeyance.__all__ if name[0].isupper()}
    for name, method in inspect.getmembers(part, inspect.isfunction):
        if not name.startswith("_"):
            assert classes_of(get_type_hints(method)["return"]) <= public, name


@pytest.mark.parametrize("part", [abeyance.Context, abeyance.ToolContext])
def test_types_of_context_properties_are_public(part: type) -> None:
    public = {getattr(abeyance, name) for name in abeyance.__all__ if name[0].isupper()}
    for name, read in inspect.getmembers(part, lambda member: isinstance(member, property)):
        assert classes_of(get_type_hints(read.fget)["return"]) <= public, name
    assert abeyance.GraphSpec is get_type_hints(abeyance.Graph.build)["return"]


def test_a_missing_export_raises_an_attribute_error_with_its_name() -> None:
    with pytest.raises(AttributeError, match="module 'abeyance' has no attribute 'Missing'"):
        abeyance.Missing  # noqa: B018


def test_importing_the_package_is_light() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import abeyance, json, sys; abeyance.Graph; print(json.dumps(sorted(sys.modules)))",
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    loaded = set(json.loads(done.stdout))

    assert "abeyance.authoring.graph" in loaded
    assert loaded.isdisjoint(HEAVY)
