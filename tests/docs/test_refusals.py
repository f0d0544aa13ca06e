"""docs/reference/refusals.md has every code that a caller can meet, with its status."""

from __future__ import annotations

import re
from pathlib import Path

from pages import read

from abeyance.api.problems import PROBLEMS
from abeyance.errors import BlockedCode, Code, FailureCode

_ROOT = Path(__file__).parents[2]
_REFUSALS, _FAILURES = read("reference/refusals.md").split("\n## ", maxsplit=1)


def named(pattern: str) -> set[str]:
    """Return the names that our code uses, apart from the list of the codes itself."""
    return {
        name
        for folder in ("abeyance", "activities", "api", "workflows")
        for path in (_ROOT / folder).rglob("*.py")
        if path.name != "errors.py"
        for name in re.findall(pattern, path.read_text(encoding="utf-8"))
    }


def test_the_table_of_refusals_has_every_code_that_is_raised_with_its_status() -> None:
    told = dict(re.findall(r"^\| `(\w+)` \| (\d+) ", _REFUSALS, re.MULTILINE))
    unavailable = {Code.UNAVAILABLE, Code.RECORDS_UNAVAILABLE}
    raised = {*unavailable, *(Code[name] for name in named(r"Refusal\(\s*Code\.([A-Z_]+)"))}

    assert len(raised) > 25
    assert told == {str(code): str(PROBLEMS[code][0]) for code in raised}


def test_the_table_of_failures_has_every_code_that_is_used() -> None:
    told = {*re.findall(r"^\| `(\w+)` \|", _FAILURES, re.MULTILINE)}

    assert told == {str(FailureCode[name]) for name in named(r"\bFailureCode\.([A-Z_]+)")}


def test_the_table_of_blocked_visits_has_every_code() -> None:
    told = re.findall(r"^\| `(\w+)` \|", read("reference/blocked.md"), re.MULTILINE)

    assert told == sorted(BlockedCode)
