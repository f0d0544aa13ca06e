"""The table of exit codes, and that the documentation keeps up with the commands."""

import json
import re
import subprocess
from hashlib import sha256
from pathlib import Path

import httpx
from command_line import Terminal
from dev_stack import Place, command, until
from pages import read
from ports import free_port

from abeyance.cli.errors import ErrorText, ExitCode

PAGE = read("reference/cli.md")


def test_the_page_has_every_exit_code() -> None:
    told = re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)

    assert [int(code) for code in told] == [*ExitCode]


def test_the_page_has_every_command(terminal: Terminal) -> None:
    listed = {
        f"abeyance {group}{name}"
        for group in ("", "graph ")
        for name in re.findall(r"│ ([a-z][a-z-]+) ", terminal.call(*group.split(), "--help")[1])
    } - {"abeyance graph"}

    assert len(listed) > 20
    assert listed == set(re.findall(r"^\| `(abeyance(?: graph)? [a-z-]+)", PAGE, re.MULTILINE))


def test_a_help_page_keeps_its_paragraphs_and_not_the_line_ends_of_the_source() -> None:
    command = ErrorText("pay", help="Pay.\n\n    A line that\n    goes on.\n\n    Another one.")

    assert command.help == "Pay.\n\nA line that goes on.\n\nAnother one."


def test_a_token_that_is_refused_and_a_temporal_that_is_away_are_told_apart(
    place: Place, terminal: Terminal
) -> None:
    grant = {"subject": "me", "sha256": sha256(b"right").hexdigest(), "capabilities": ["runs:read"]}
    tokens: Path = place.folder / "tokens.json"
    tokens.write_text(json.dumps([grant]))
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    terminal.set("ABEYANCE_URL", url)
    with subprocess.Popen(
        command("api", "sums:graph", "--port", str(port)),
        cwd=place.folder,
        env={
            **place.environment,
            "ABEYANCE_TOKENS_FILE": str(tokens),
            "TEMPORAL_ADDRESS": "127.0.0.1:1",
        },
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as api:
        try:
            until(lambda: is_up(url), "the API to be up")
            code, _, err = terminal.call("show", "any")
            assert (code, "ABEYANCE_TOKEN is not set" in err) == (3, True)

            terminal.set("ABEYANCE_TOKEN", "wrong")
            code, _, err = terminal.call("list")
            assert (code, "the token of ABEYANCE_TOKEN was sent" in err) == (3, True)
            assert "unauthenticated" in err
            code, _, err = terminal.call("graph", "show", "sum", "--json")
            assert (code, json.loads(err)["code"]) == (3, "unauthenticated")

            terminal.set("ABEYANCE_TOKEN", "right")
            code, _, err = terminal.call("pause", "any")
            assert (code, "runs:control" in err) == (3, True)
            code, out, err = terminal.call("show", "any", "--json")
            assert (code, out, json.loads(err)["code"]) == (4, "", "unavailable")
        finally:
            api.kill()


def is_up(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz", trust_env=False).is_success
    except httpx.TransportError:
        return False


def test_without_rich_a_table_is_plain_and_the_commands_work(place: Place) -> None:
    (place.folder / "plain.yaml").write_text(
        "nodes: [{id: gate, kind: interrupt, config: {prompt: A}}]"
    )
    source = (
        "import sys\n"
        "sys.modules['rich'] = None\n"
        "from abeyance.cli.main import run\n"
        "print(run(['graph', 'check', 'plain.yaml']), run(['--help']), run(['run']))\n"
        "from abeyance.cli.formatting import show_table\n"
        "sys.stdout.isatty = lambda: True\n"
        "show_table(('RUN', 'STATUS'), [('a', 'x\\x1b'), ('\u6c34\u6c34', 'y')])\n"
    )
    done = place.python("-c", source, TYPER_USE_RICH="0")

    assert "0 0 2\n" in done.stdout
    assert done.stdout.endswith("RUN   STATUS\na     x<U+001B>\n\u6c34\u6c34  y\n")
    assert "Traceback" not in done.stderr
