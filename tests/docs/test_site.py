"""The site: every page has its place, the HTTP reference is the API's, and no page loads from afar."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from pages import DOCS, read

import abeyance
from abeyance.api.app import create_app
from abeyance.settings import Settings

_ROOT = DOCS.parent
_MADE = "reference/http.md"


def pages_of(nav: Any) -> Iterator[str]:
    """Yield the pages that a part of the navigation names."""
    match nav:
        case str():
            yield nav
        case list():
            for each in nav:
                yield from pages_of(each)
        case dict():
            for each in nav.values():
                yield from pages_of(each)
        case _:
            pytest.fail(f"no page and no part: {nav}")


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_hooks", DOCS / "hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return create_app(Settings(), {}).openapi()


def test_every_page_for_users_stands_once_in_the_navigation() -> None:
    config = yaml.safe_load((_ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    named = [*pages_of(config["nav"])]
    pages = [page.relative_to(DOCS) for page in DOCS.glob("**/*.md")]
    written = {str(page) for page in pages if page.parts[0] != "internals"}

    assert len(named) == len({*named})
    assert {*named} == written | {_MADE}


def test_the_http_reference_has_every_call_with_its_answers_and_every_shape(
    hooks: ModuleType, document: dict[str, Any]
) -> None:
    page = hooks.http_reference(document)
    parts = {part.partition("`")[0]: part for part in page.split("\n### `")[1:]}

    for path, methods in document["paths"].items():
        for method, call in methods.items():
            part = parts[f"{method.upper()} {path}"]
            for status, answer in call["responses"].items():
                assert (f"**{status}** " in part) == ("$ref" not in answer)
            for parameter in call.get("parameters", ()):
                assert f"`{parameter['name']}`" in part
    for name in document["components"]["schemas"]:
        assert f"\n### {name}\n" in page


def test_the_python_reference_has_every_public_name_once() -> None:
    named = re.findall(r"^::: abeyance\.(\w+)$", read("reference/python.md"), re.MULTILINE)

    assert sorted(named) == sorted(abeyance.__all__)


def test_a_link_to_a_file_of_the_repository_leads_to_its_page(hooks: ModuleType) -> None:
    others = "[b](agents.md#tools) [c](https://example.com/x.md) [d](#e)"

    of_page = hooks.rewritten(f"[a](../../api/auth.py) {others}", "how-to/control.md")
    of_file = hooks.rewritten("[a](../docs/how-to/agents.md#e)", "repository/examples/README.md")
    assert of_page == f"[a](../repository/api/auth.py.md) {others}"
    assert of_file == "[a](../../how-to/agents.md#e)"


def test_pages_have_no_diagrams_that_need_a_fetched_script() -> None:
    assert [page for page in DOCS.glob("**/*.md") if "```mermaid" in page.read_text("utf-8")] == []


@pytest.mark.skipif(
    importlib.util.find_spec("mkdocs") is None, reason="mkdocs comes with the extra `docs` only"
)
def test_the_site_can_be_built_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    subprocess.run(
        [
            sys.executable,
            "-m",
            "mkdocs",
            "build",
            "--strict",
            "--quiet",
            "--site-dir",
            str(tmp_path),
        ],
        cwd=_ROOT,
        check=True,
        capture_output=True,
        text=True,
    )

    built = [*tmp_path.glob("**/*.html")]
    assert len(built) > 40
    for page in built:
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(
            r"<(?:script|img|link|iframe)[^>]* (?:src|href)=[\"']?(https?:[^\"' >]+)", text
        )
        assert loaded == [], page.name


def test_the_start_page_leads_to_every_part() -> None:
    start = read("index.md")

    for part in ("get-started.md", "tutorial/", "how-to/", "concepts/", "reference/"):
        assert f"]({part}" in start
