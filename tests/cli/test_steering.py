"""`abeyance steer` and `abeyance messages`: saying something to a run."""

import pytest
from command_line import Terminal
from dev_stack import Stack


def test_a_message_is_sent_listed_and_thrown_away(terminal: Terminal, standing: Stack) -> None:
    standing.start("steered")
    standing.view("steered", "awaiting-input")
    options = ["--id", "m1", "--priority", "high", "--ttl", "1h", "--target", "add"]
    code, out, err = terminal.call(
        "steer", "steered", "look at page 2", *options, "--metadata", '{"page": 2}'
    )
    assert (code, err) == (0, "")
    assert out.splitlines() == ["sent       m1"]

    again = terminal.told(
        "steer", "steered", "look at page 2", *options, "--metadata", '{"page": 2}'
    )
    assert again == {"run_id": "steered", "message_id": "m1"}

    (listed,) = terminal.told("messages", "steered")["items"]
    assert (listed["text"], listed["metadata"]) == ("look at page 2", {"page": 2})
    _, out, _ = terminal.call("messages", "steered")
    assert out.startswith(
        "message    look at page 2\n           m1  from local, target add, high, until "
    )
    assert terminal.told("messages", "steered", "--page", "2")["items"] == []

    assert terminal.call("messages", "steered", "--clear")[1] == "cleared    1\n"
    assert terminal.told("messages", "steered", "--clear") == {"cleared": 0}
    assert terminal.call("messages", "steered")[1] == "unread     0\n"


@pytest.fixture(scope="module")
def deaf(standing: Stack) -> str:
    """A run to which nothing is said that it accepts."""
    standing.start("deaf")
    return "deaf"


@pytest.mark.usefixtures("deaf")
@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["steer", "nobody", "hello"], 3, "unknown_run"),
        (["messages", "nobody"], 3, "unknown_run"),
        (["messages", "nobody", "--clear"], 3, "unknown_run"),
        (["steer", "deaf", "x", "--ttl", "soon"], 3, "invalid_body"),
        (["steer", "deaf", "x", "--priority", "huge"], 3, "invalid_body"),
        (["steer", "deaf"], 2, "a message has no text"),
        (["steer", "deaf", "x", "--params", "{"], 2, "--params"),
        (["steer", "deaf", "x", "--metadata", "@nofile"], 2, "--metadata"),
    ],
)
def test_what_cannot_be_said_is_refused(
    terminal: Terminal, arguments: list[str], code: int, told: str
) -> None:
    found, out, err = terminal.call(*arguments)

    assert (found, out) == (code, "")
    assert told in err
