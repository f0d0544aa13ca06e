"""docs/how-to/operating.md tells operators commands that a run understands."""

from __future__ import annotations

import re
import shlex

import pytest
from pages import DOCS, read
from pydantic import BaseModel

from abeyance import commands, names
from abeyance.workflows.run import AgentRun

_PAGE = read("how-to/operating.md")
_COMMANDS = [
    shlex.split(line, comments=True)
    for block in re.findall(r"```console\n(.*?)```", _PAGE, re.DOTALL)
    for line in block.replace("\\\n", " ").splitlines()
    if line.startswith("temporal ")
]
_SHAPES: dict[str, type[BaseModel]] = {
    "pause": commands.Pause,
    "cancel": commands.Cancel,
    "steer": commands.SteerMessage,
    "respond": commands.Respond,
}


def named(words: list[str], option: str) -> str | None:
    return words[words.index(option) + 1] if option in words else None


@pytest.mark.parametrize("words", _COMMANDS, ids=" ".join)
def test_a_command_names_what_a_run_has_and_what_it_can_read(words: list[str]) -> None:
    name, given = named(words, "--name"), named(words, "--input")

    if name is not None:
        assert callable(getattr(AgentRun, name))
    if given is not None:
        assert _SHAPES[str(name)].model_validate_json(given)


def test_the_page_has_commands_for_all_that_people_do() -> None:
    shown = {named(words, "--name") for words in _COMMANDS}

    assert {"pause", "resume", "cancel", "steer", "respond", "state"} <= shown


@pytest.mark.parametrize("page", ["operating", "storage", "temporal-cloud"])
def test_a_page_names_every_search_attribute(page: str) -> None:
    named = re.findall(r"\bAbeyance[A-Z]\w+", read(f"how-to/{page}.md"))
    assert {*named} == {*names.SEARCH_ATTRIBUTES}


def test_every_picture_is_shown_described_and_small() -> None:
    pages = [page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md")]
    shown = {
        path: text
        for page in pages
        for text, path in re.findall(r"!\[([^\]]+)\]\(\.\./pictures/(\S+\.png)\)", page)
    }
    taken = {picture.name: picture.stat().st_size for picture in DOCS.glob("pictures/*.png")}

    assert set(shown) == set(taken)
    assert min(map(len, shown.values())) > 40
    assert max(taken.values()) < 150_000
