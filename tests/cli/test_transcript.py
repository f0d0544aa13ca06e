"""`abeyance transcript`, and answering what agents ask from the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from agent_graphs import counters, payments, writers
from command_line import Terminal
from own_thread import Threaded, threaded
from stack import new_id

MUCH = {"task": "pay much"}
"""The input at which the clerk asks before it pays."""
WRITER = "graph:writers;node:write;agent:writer"


@pytest.fixture(scope="module")
def bank(address: str) -> Iterator[Threaded]:
    with threaded(address, payments(), writers(), counters()) as stack:
        yield stack


@pytest.fixture
def teller(
    bank: Threaded, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Terminal:
    return Terminal(bank.api.url, capsys, monkeypatch)


def waiting(bank: Threaded, graph: str, **input: Any) -> tuple[str, str]:
    run_id, (asked,) = bank.do(bank.api.waiting(graph, input, run_id=new_id()))
    return run_id, asked


def until(bank: Threaded, run_id: str, status: str) -> dict[str, Any]:
    return bank.do(bank.api.until(run_id, status))


def test_a_transcript_reads_like_a_conversation(bank: Threaded, teller: Terminal) -> None:
    run_id, asked = waiting(bank, "payments", **MUCH)
    assert teller.call("steer", run_id, "be \x1b[2J quick")[0] == 0
    assert teller.call("respond", asked, "--approve")[0] == 0
    until(bank, run_id, "completed")

    code, out, err = teller.call("transcript", run_id)
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert lines[0] == "input      pay much"
    assert lines[1:4] == [
        "turn 1     Let me see what she has.",
        '           calls balance(of="ada")  call_1',
        '           calls transfer(amount=5000, to="ada")  call_2',
    ]
    assert lines[4].startswith("           --  2")
    assert "tokens in" in lines[4]
    assert "\nresult     transfer  call_2\n           sent 5000 to ada\n" in out
    assert "\nmessage    from local, message " in out
    # The text of a run cannot repaint the terminal.
    assert "be �[2J quick" in out


def test_programs_get_each_item_in_a_line(bank: Threaded, teller: Terminal) -> None:
    run_id, _ = waiting(bank, "counters", task="2")

    items = teller.lines("transcript", run_id)
    assert [item["role"] for item in items] == ["user", *["assistant", "tool"] * 2, "assistant"]
    assert items[2]["result"] == {"of": "0", "euros": 70}


def test_a_run_with_several_transcripts_requires_an_address(
    bank: Threaded, teller: Terminal
) -> None:
    run_id, _ = waiting(bank, "writers", task="cats")

    code, out, err = teller.call("transcript", run_id)
    assert (code, out) == (3, "")
    assert WRITER in err
    assert "a text about cats" in teller.call("transcript", run_id, "--address", WRITER)[1]
    code, _, err = teller.call("transcript", run_id, "--address", "graph:x", "--json")
    assert (code, json.loads(err)["code"]) == (3, "unknown_node")


def test_a_question_about_a_call_shows_it_and_how_to_answer(
    bank: Threaded, teller: Terminal
) -> None:
    run_id, asked = waiting(bank, "payments", **MUCH)

    shown = teller.call("show", run_id)[1]
    assert "agents     graph:payments;node:pay;agent:clerk  after 1 turn, " in shown
    assert """question   Run 'transfer' with {"amount":5000,"to":"ada"}?""" in shown
    assert f"           abeyance respond {asked} --approve\n" in shown
    assert f"           abeyance respond {asked} --reject 'why'\n" in shown
    _, listed, told = teller.call("inbox")
    assert """Run 'transfer' with {"amount":5000,"to":"ada"}?""" in listed
    assert "abeyance respond INTERRUPT --approve" in told


def test_a_call_is_rejected_with_or_without_a_reason_that_the_model_sees(
    bank: Threaded, teller: Terminal
) -> None:
    run_id, _ = waiting(bank, "payments", **MUCH)
    assert teller.call("respond", run_id, "--reject", "")[0] == 0
    assert "rejected" in until(bank, run_id, "completed")["values"]["report"]

    run_id, asked = waiting(bank, "payments", **MUCH)
    why = "too much"
    assert teller.call("respond", run_id, "--reject", why)[0] == 0
    assert why in until(bank, run_id, "completed")["values"]["report"]
    assert "\ndenied     transfer  call_2\n" in teller.call("transcript", run_id)[1]
    code, out, _ = teller.call("respond", asked, "--reject", why)
    assert (code, out.split(",")[0]) == (0, f"unchanged  {asked}")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--approve", "--arguments", '{"amount": "much", "to": "x"}'],
        ["--reject", "x" * 3_000],
    ],
)
def test_an_answer_that_does_not_fit_is_refused_and_the_question_stays(
    teller: Terminal, refusing: str, arguments: list[str]
) -> None:
    code, out, err = teller.call("respond", refusing, *arguments)

    assert (code, out, "invalid_answer" in err) == (3, "", True)
    (asked,) = teller.told("interrupts", refusing.partition(".")[0])["items"]
    assert (asked["id"], asked["status"]) == (refusing, "open")


@pytest.fixture(scope="module")
def refusing(bank: Threaded) -> str:
    """Return the id of a question that nobody answers."""
    return waiting(bank, "payments", **MUCH)[1]
