"""What docs/how-to/notifications.md shows is what happens. Its file is read in tests/notifications."""

from __future__ import annotations

import re
import shlex

import pytest
import typer
from pages import Block, blocks, perform, prose

from abeyance.cli import main
from abeyance.metrics import METRICS

_PAGE = "how-to/notifications.md"


@pytest.mark.parametrize("block", blocks(_PAGE, "python"), ids=str)
async def test_an_example_does_what_it_asserts(block: Block) -> None:
    assert "assert " in block.text
    await perform(block, {})


def test_a_command_has_the_arguments_that_the_command_line_knows() -> None:
    commands = typer.main.get_group(main.commands).commands
    lines = [line for block in blocks(_PAGE, "console") for line in block.text.splitlines()]
    written = [shlex.split(line) for line in lines if line.startswith("abeyance ")]

    assert written
    for _, name, *arguments in written:
        assert commands[name].make_context(name, arguments)


def test_its_metric_is_measured() -> None:
    (name,) = re.findall(r"`(notification_\w+)\{", prose(_PAGE))

    assert name in {metric.exposed for metric in METRICS}
