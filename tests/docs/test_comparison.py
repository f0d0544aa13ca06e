"""docs/concepts/comparison.md describes LangGraph as it behaves, where it is installed."""

from __future__ import annotations

import importlib.util
import re
from importlib.metadata import version

import pytest
from pages import DOCS, read

_PAGE = read("concepts/comparison.md")
_HERE = importlib.util.find_spec("langgraph") is not None


@pytest.mark.skipif(not _HERE, reason="langgraph comes with the extra `bench` only")
@pytest.mark.filterwarnings("default")
def test_the_script_runs_to_its_end_with_the_version_that_is_named() -> None:
    (named,) = re.findall(r"`langgraph==([\d.]+)`", _PAGE)
    if version("langgraph") != named:
        pytest.skip(f"the page is about {named}")
    (script,) = re.findall(r"```python\n(.*?)```", _PAGE, re.DOTALL)

    exec(compile(script, "comparison.md", "exec", dont_inherit=True), {"__name__": "comparison"})


def test_the_script_is_python() -> None:
    (script,) = re.findall(r"```python\n(.*?)```", _PAGE, re.DOTALL)

    assert len(re.findall(r"^assert ", script, re.MULTILINE)) == 6
    compile(script, "comparison.md", "exec", dont_inherit=True)


def test_every_test_that_it_names_is_there() -> None:
    (named,) = re.findall(r"These tests show (.*?)\n\n", _PAGE, re.DOTALL)
    paths = re.findall(r"`(tests/[\w/]+\.py)`", named)
    sources = "".join((DOCS.parent / path).read_text(encoding="utf-8") for path in paths)
    names = re.findall(r"`(\w+)`", named)

    assert (len(paths), len(names)) == (2, 3)
    assert [each for each in names if f"def test_{each}(" not in sources] == []
