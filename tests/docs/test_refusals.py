"""docs/reference/refusals.md knows every code that can be met, with its status."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from pages import read

from abeyance.api.problems import PROBLEMS
from abeyance.errors import BlockedCode, Code, FailureCode

_ROOT = Path(__file__).parents[2]
_REFUSALS, _FAILURES = read("reference/refusals.md").split("\n## ", maxsplit=1)


def nodes() -> Iterator[ast.AST]:
    """Everything that is written in our code, but for the list of the codes itself."""
    for folder in ("abeyance", "activities", "api", "workflows"):
        for path in (_ROOT / folder).rglob("*.py"):
            if path.name != "errors.py":
                yield from ast.walk(ast.parse(path.read_text(encoding="utf-8")))


def test_the_table_of_refusals_has_every_code_that_is_raised_with_its_status() -> None:
    told = dict(re.findall(r"^\| `(\w+)` \| (\d+) ", _REFUSALS, re.MULTILINE))
    raised = {Code.UNAVAILABLE}
    for node in nodes():
        match node:
            case ast.Call(
                func=ast.Name(id="Refusal"),
                args=[ast.Attribute(value=ast.Name(id="Code"), attr=name), *_],
            ):
                raised.add(Code[name])
            case _:
                pass

    assert len(raised) > 25
    assert told == {str(code): str(PROBLEMS[code][0]) for code in raised}


def test_the_table_of_failures_has_every_code_that_is_used() -> None:
    told = {*re.findall(r"^\| `(\w+)` \|", _FAILURES, re.MULTILINE)}
    used = {
        str(FailureCode[node.attr])
        for node in nodes()
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "FailureCode"
    }

    assert told == used


def test_the_table_of_blocked_visits_has_every_code() -> None:
    told = re.findall(r"^\| `(\w+)` \|", read("reference/blocked.md"), re.MULTILINE)

    assert told == sorted(BlockedCode)
