"""The commands that pages show exist, and have the options that the pages show."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from abeyance.cli.main import commands

_ROOT = Path(__file__).parents[2]
_ALL = typer.main.get_command(commands)


def shown(page: Path) -> list[str]:
    """Return the commands that a page tells the reader to type, in blocks and in sentences."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```(?:console|sh)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    typed = [
        line[line.index("abeyance ") :]
        for block in blocks
        for line in block.replace("\\\n", " ").splitlines()
        if re.search(r"(?:^|\(|until |&& )abeyance ", line)
    ]
    rest = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return [*typed, *re.findall(r"`(abeyance [a-z][^`\n]*)`", rest)]


_SHOWN = [
    (page.name, line)
    for page in [_ROOT / "README.md", *sorted((_ROOT / "docs").glob("**/*.md"))]
    for line in dict.fromkeys(shown(page))
]


def test_the_commands_are_found() -> None:
    assert len(_SHOWN) > 40


@pytest.mark.parametrize(("page", "line"), _SHOWN, ids=str)
def test_a_command_of_a_page_is_one_and_has_its_options(page: str, line: str) -> None:
    first, *_ = re.split(r" (?:[|>]|&&) |;|\)\s*$", line)
    words = shlex.split(first, comments=True)[1:]
    command = _ALL
    while isinstance(command, TyperGroup) and words:
        assert words[0] in command.commands, f"{page}: there is no command {words[0]}"
        command = command.commands[words.pop(0)]
    known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}

    assert {word for word in words if word.startswith("--")} <= {*known, "--help"}
