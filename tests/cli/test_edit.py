"""`abeyance edit` and `abeyance deadline`: changing a run that has stopped."""

from datetime import UTC, datetime, timedelta

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
