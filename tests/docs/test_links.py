"""Every link of every page leads somewhere."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_TRACKED = subprocess.run(
    ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
    cwd=_ROOT,
    capture_output=True,
    text=True,
    check=True,
).stdout.splitlines()
_MADE = _ROOT / "docs" / "reference" / "http.md"
"""The page that `make docs` writes from the OpenAPI document."""
_PAGES = sorted(path for name in {*_TRACKED} if (path := _ROOT / name).exists())


def prose(page: Path) -> str:
    """Return a page without its blocks of code."""
    return re.sub(
        r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )


def anchors(page: Path) -> set[str]:
    """Return the names of headings in links: their words in lower case, joined by dashes."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_pages_are_found() -> None:
    assert {_ROOT / "README.md", _ROOT / "docs" / "concepts" / "glossary.md"} < {*_PAGES}


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: str(page.relative_to(_ROOT)))
def test_every_relative_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, heading = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if target == _MADE:
            continue
        assert target.exists(), f"{link}: there is no such file"
        assert target.is_relative_to(_ROOT), f"{link}: outside of what is published"
        if heading:
            assert heading in anchors(target), f"{link}: there is no such heading"


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: str(page.relative_to(_ROOT)))
def test_every_file_that_is_named_is_there(page: Path) -> None:
    named = re.findall(r"`((?:tests|docs|benchmarks|examples|deploy)/[\w/.-]+)`", prose(page))

    for path in named:
        assert (_ROOT / path).exists(), path
