"""`abeyance edit` and `abeyance deadline`: changing a run that has stopped."""

from datetime import UTC, datetime, timedelta

import pytest
from command_line import Terminal
from dev_stack import Stack


def test_a_value_is_set_and_read_by_what_comes_next(terminal: Terminal, standing: Stack) -> None:
    standing.start("edited", amount=5)

    code, out, _ = terminal.call("edit", "edited", "amount=40", 'label="by hand"')

    assert code == 0
    assert "amount = 40" in out
    assert 'label = "by hand"' in out
    assert standing.answer("edited", 2).status_code == 200
    assert standing.view("edited", "completed")["values"]["amount"] == 42


def test_values_that_have_changed_since_are_not_overwritten(
    terminal: Terminal, standing: Stack
) -> None:
    standing.start("changing")
    seen = str(standing.view("changing", "awaiting-input")["version"])
    view = terminal.told("edit", "changing", "amount=3", "--version", seen)

    code, out, err = terminal.call("edit", "changing", "amount=4", "--version", seen)

    assert view["values"]["amount"] == 3
    assert (code, out) == (3, "")
    assert "stale" in err
    assert terminal.told("show", "changing")["values"]["amount"] == 3


def test_a_deadline_is_set_moved_and_removed(terminal: Terminal, standing: Stack) -> None:
    question = standing.start("timed")
    moment = "2099-03-05T09:00:00Z"

    assert terminal.told("deadline", question, moment)["deadline"] == moment
    _, out, _ = terminal.call("deadline", question, "2d", "--on-timeout", "halt")
    assert ", then halt" in out
    entry = standing.view("timed", "awaiting-input")["interrupts"][0]
    far = datetime.fromisoformat(entry["deadline"]) - datetime.now(UTC)
    assert timedelta(days=1, hours=23) < far <= timedelta(days=2)
    assert terminal.told("deadline", question, "none")["deadline"] is None


@pytest.mark.parametrize(
    ("arguments", "exit_code", "hint"),
    [
        (["edit", "refused-edit", "amount"], 2, "write name=JSON"),
        (["edit", "refused-edit", "label=text"], 2, "put a string in quotes"),
        (["edit", "refused-edit", "label={'a': 1}"], 2, "strings take double quotes"),
        (["edit", "refused-edit", "label=new.json"], 2, "write @new.json"),
        (["edit", "refused-edit", "colour=1"], 3, "invalid_input"),
        (["edit", "nobody", "amount=1"], 3, "unknown_run"),
        (["deadline", "refused-edit.0123456789abcdef", "1d"], 3, "unknown_interrupt"),
        (["deadline", "refused-edit", "1d"], 2, "is not an interrupt id"),
        (["deadline", "refused-edit.0123456789abcdef"], 2, "nothing is to be changed"),
        (["deadline", "refused-edit.0123456789abcdef", "P1M"], 2, "has months or years"),
        (["deadline", "refused-edit.0123456789abcdef", "tomorrow"], 3, "/deadline: "),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_change_that_cannot_be_made_is_told(
    terminal: Terminal, standing: Stack, arguments: list[str], exit_code: int, hint: str
) -> None:
    if terminal.call("show", "refused-edit")[0] == 3:
        standing.start("refused-edit")

    code, out, err = terminal.call(*arguments)

    assert (code, out) == (exit_code, "")
    assert hint in err
