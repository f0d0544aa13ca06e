"""Refusals of commands, each in one readable line: wrong usage, and refusals of the API."""

from __future__ import annotations

import pytest
from command_line import Terminal
from dev_stack import Stack

ASKED = "refusing.0123456789abcdef"


@pytest.fixture(scope="module")
def waiting(standing: Stack) -> str:
    """Start a run that waits for an answer; commands about it are refused."""
    standing.start("refusing", amount=7)
    return "refusing"


REFUSED: list[tuple[list[str], str, str]] = [
    (["show", "nobody"], "unknown_run", "nobody"),
    (["show", "no body"], "invalid_run_id", "no body"),
    (["run", "sum", "--input", '{"amount": "many"}'], "invalid_input", "/amount"),
    (["run", "sum", "--on-error", ""], "invalid_body", "--on-error: "),
    (["run", "sum", "--on-error", "goto:add"], "invalid_body", "--on-error: "),
    (["run", "sum", "--label", "a b=c"], "invalid_body", "--label/a b: "),
    (
        ["run", "sum", "--interrupt-after", "x"],
        "unknown_node",
        "--interrupt-before or --interrupt-a",
    ),
    (["respond", "refusing", '"a text"'], "invalid_answer", ""),
    (["pause", "refusing", "--on-timeout", "later"], "invalid_body", "--on-timeout: "),
    (["claim", ASKED, "--for", ""], "invalid_body", "--for: "),
    (["claim", ASKED, "--for", "2d"], "invalid_body", "--for: "),
    (["delegate", "bo", "1d", "--from", ""], "invalid_body", "--from: "),
    (["reassign", ASKED, "a b"], "invalid_body", "TO: 'a b' is neither"),
    (["delegate", "bob", "100d"], "invalid_body", "90 days"),
    (["edit", "refusing", "colour=1"], "invalid_input", "colour"),
    (["deadline", ASKED, "1d"], "unknown_interrupt", ASKED),
    (["deadline", ASKED, "tomorrow"], "invalid_body", "[TIME|DURATION|none]: "),
    (["steer", "refusing", "x", "--ttl", "soon"], "invalid_body", "--ttl: "),
    (["steer", "refusing", "x", "--priority", "huge"], "invalid_body", "--priority: "),
    (["steer", "refusing", "x", "--id", ""], "invalid_body", "--id: "),
    (["migrate", "refusing", "--map", ".=b"], "invalid_body", "--map: "),
    (["rewind", "refusing", "--to", "nothing"], "unknown_interrupt", "nothing"),
    (
        ["rewind", "refusing", "--to", "start", "--patch", '{"a": 1}'],
        "invalid_input",
        "'a'",
    ),
    (["retry", "refusing"], "not_finished", "refusing"),
    (["events", "nobody", "--follow"], "unknown_run", "nobody"),
    (["watch", "nobody"], "unknown_run", "nobody"),
    (["events", "refusing", "--after", "x"], "invalid_body", "is not a cursor"),
    (["events", "refusing", "--after", "x", "--follow"], "invalid_body", "is not a cursor"),
    (["list", "--status", "asleep"], "invalid_body", "'asleep' is not a status of a run"),
    (["list", "--label", "team"], "invalid_body", "write name=value"),
    (["list", "--cursor", "x"], "invalid_body", "is not a cursor of this list"),
    (["list", "--order", "newest"], "invalid_body", "newest"),
    (
        ["list", "--from", "2026-02-01T00:00Z", "--to", "2026-01-01T00:00Z"],
        "invalid_body",
        "is after 2026-01-01",
    ),
    (["inbox", "--before", "soon"], "invalid_body", "a time is text such as"),
    (["approvals", "--outcome", "won"], "invalid_body", "won"),
    (["approvals", "--fields", "amount"], "invalid_body", "'amount' is not a field of a question"),
    (["approvals", "--from", "soon"], "invalid_body", "a time is text such as"),
]


@pytest.mark.usefixtures("waiting")
@pytest.mark.parametrize(
    ("arguments", "code", "words"), REFUSED, ids=[" ".join(each[0]) for each in REFUSED]
)
def test_a_refusal_is_a_readable_line_and_exit_code_three(
    terminal: Terminal, arguments: list[str], code: str, words: str
) -> None:
    exit_code, out, err = terminal.call(*arguments)

    assert (exit_code, out) == (3, "")
    first, *others = err.splitlines()
    assert first.startswith(f"abeyance: {code}: ")
    assert words in err
    assert len(others) <= 1


FILTERS = {
    "list": "status graph conversation label cursor from to order",
    "approvals": "from to person capability graph outcome fields sum cursor",
    "inbox": "capability graph conversation before assignee priority order cursor",
    "events": "type graph capability after",
    "events --follow": "after",
}


@pytest.mark.parametrize(
    "command",
    [f"{command} --{name}" for command, names in FILTERS.items() for name in names.split()],
)
def test_an_empty_filter_is_refused_and_is_not_left_out(terminal: Terminal, command: str) -> None:
    code, out, err = terminal.call(*command.split(), "")

    assert (code, out) == (3, ""), err
    option = command.rsplit(maxsplit=1)[-1]
    # Only the records know what a cursor is: their message does not name the option.
    assert f"{option}: " in err or "is not a cursor of" in err


WRONG: list[tuple[list[str], str]] = [
    (["respond", "any", "yes"], "is not JSON"),
    (["respond", "any", "NaN"], "is not JSON"),
    (["respond", "any", '"\\ud800"'], "is not JSON"),
    (["respond", "any"], "exactly one answer is required"),
    (["respond", "any", "1", "--response", "2"], "exactly one answer is required"),
    (["respond", "any", "true", "--approve"], "exactly one answer is required"),
    (["respond", "any", "--approve", "--reject", "no"], "exactly one answer is required"),
    (["respond", "any", "--arguments", "{}"], "add --approve"),
    (["respond", "any", "--reject", "no", "--arguments", "{}"], "add --approve"),
    (["respond", "any", "--approve", "--arguments", "much"], "is not JSON"),
    (["respond", "any", '{"approved": false, "approved": true}'], "ANSWER: 'approved' has"),
    # Python turns bytes that are not text into this.
    (["respond", "any", "--reject", "\udcff"], "is not valid Unicode"),
    (["run"], "Missing argument 'GRAPH': see `abeyance run --help`"),
    (["run", "sum", "--input", "@nothing.json"], "nothing.json cannot be read"),
    (["run", "sum", "--input", "@"], "--input: write the name of a file after @"),
    (["run", "sum", "--input", '{"a": [{"b": 1, "b": 1}]}'], "--input: 'b' has several values"),
    (["run", "sum", "--label", "team"], "write name=value"),
    (["run", "sum", "--label", "a=b", "--label", "a=c"], "--label: 'a' has several values"),
    (["edit", "any", "a=1", "a=2"], "FIELD: 'a' has several values"),
    (["edit", "any", 'a={"b": 1, "b": 2}'], "a: 'b' has several values"),
    (["edit", "any", "amount"], "write name=JSON"),
    (["edit", "any", "label=text"], "put a string in quotes"),
    (["edit", "any", "label={'a': 1}"], "strings take double quotes"),
    (["edit", "any", "label=new.json"], "write @new.json"),
    (["deadline", "any", "1d"], "is not an interrupt id"),
    (["deadline", ASKED], "nothing is to be changed"),
    (["deadline", ASKED, "P1M"], "has months or years"),
    (["steer", "any"], "a message has no text"),
    (["steer", "any", "x", "--params", "{"], "--params"),
    (["steer", "any", "x", "--metadata", "@nofile"], "--metadata"),
    (["transcript"], "Missing argument"),
    (["audit"], "give one of RUN, --verify FILE and --public-key"),
    (["audit", "r", "--public-key"], "give one of RUN, --verify FILE and --public-key"),
    (["audit", "r", "--key", "x"], "--key is for --verify FILE"),
    (["audit", "--verify", "none"], "--verify: none cannot be read"),
    (["audit", "--verify", "none", "--key", "x"], "--key: the public key is not base64"),
    (["audit", "--public-key"], "ABEYANCE_AUDIT_KEY is not set"),
    (["retry", "any", "--map", "a=b"], "--map is for the graph of today: add --today"),
    (["retry", "any", "--patch", "amount"], "--patch: 'amount' is not JSON"),
    (["migrate"], "name one RUN, or use both --graph and --all"),
    (["migrate", "--all"], "name one RUN"),
    (["migrate", "--graph", "sum"], "name one RUN"),
    (["migrate", "any", "--graph", "sum", "--all"], "name one RUN"),
    (["migrate", "any", "--map", "pay"], "write OLD=NEW"),
    (["migrate", "any", "--map", "a=b", "--map", "a=c"], "--map: 'a' has several values"),
    (["cancel", "any", "--now", "--grace", "5s"], "leave out --grace, or --now"),
    (["show", "any", "--colour"], "No such option"),
    (["list", "--limit", "0"], "greater than or equal to 1 (got '0')"),
    (["inbox", "--min-risk", "some"], "(got 'some')"),
    (["events", "any", "--type", "run.started"], "--type selects among the events of all runs"),
    (["--as", "", "list"], "'' is not a subject"),
    (["--as", " ", "list"], "is not a subject"),
    (["grants", "revoke", "\udcff"], "ID: '?' is not an id"),
    (["delegations", "--delete", ".."], "--delete: '..' is not an id"),
    (["graph", "show", "\udcff"], "NAME: '?' is not an id"),
    (["graph", "check", "gone.yaml"], "'gone.yaml' cannot be read: No such file or directory\n"),
    (["pay"], "No such command 'pay': see `abeyance --help`"),
    (["setup", "--retention", "a while"], "'a while' is not a duration"),
]


@pytest.mark.parametrize(
    ("arguments", "hint"), WRONG, ids=[ascii(" ".join(each[0])) for each in WRONG]
)
def test_wrong_usage_is_exit_code_two(terminal: Terminal, arguments: list[str], hint: str) -> None:
    code, out, err = terminal.call(*arguments)

    assert (code, out) == (2, "")
    (line,) = err.splitlines(keepends=True)
    assert line.startswith("abeyance: ")
    assert hint in line
