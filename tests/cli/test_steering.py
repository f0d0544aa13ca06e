"""`abeyance steer` and `abeyance messages`: saying something to a run."""

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
