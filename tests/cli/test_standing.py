"""Claims and delegations in the terminal."""

from command_line import Terminal
from dev_stack import Stack


def test_a_question_is_claimed_released_and_reassigned(terminal: Terminal, standing: Stack) -> None:
    question = standing.start("claimed")

    code, out, _ = terminal.call("claim", question, "--for", "1h")
    assert code == 0
    assert "claimed by local until " in out
    mine = terminal.told("inbox", "--mine", "--order", "age", "--all")["items"]
    assert question in [entry["id"] for entry in mine]
    assert terminal.told("release", question)["claim"] is None
    _, out, _ = terminal.call("reassign", question, "ada", "group:finance", "--note", "away")
    assert "for ada, group:finance" in out


def test_a_run_is_started_for_a_person_and_show_says_so(
    terminal: Terminal, standing: Stack
) -> None:
    assert standing is not None
    about = ("--input", '{"amount": 1}', "--on-behalf-of", "carol", "--wait")
    started = terminal.told("run", "sum", *about)
    _, out, _ = terminal.call("show", started["run_id"])

    assert (started["started_by"], started["sent_by"]) == ("carol", "local")
    assert "by local for carol" in out


def test_a_delegation_is_made_listed_and_deleted(terminal: Terminal, standing: Stack) -> None:
    assert standing is not None
    made = terminal.told(
        "delegate", "bob", "2d", "--capability", "refunds:approve", "--reason", "away"
    )
    _, out, _ = terminal.call("delegations")
    assert f"{made['id']}: bob for local" in out
    assert "lends refunds:approve" in out
    listed = terminal.told("delegations", "--delete", made["id"])["items"]
    assert made["id"] not in [each["id"] for each in listed]
