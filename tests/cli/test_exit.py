"""The table of exit codes; the documentation has every code and every command."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import Terminal, called
from dev_stack import Place
from pages import read
from sample_graphs import gated
from stack import served

from abeyance.api.app import create_app
from abeyance.cli.errors import ErrorText, ExitCode
from abeyance.settings import Settings
from abeyance.token_file import add_token

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


async def test_a_refused_token_and_a_missing_temporal_have_their_own_exit_codes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = tmp_path / "tokens.json"
    right = add_token(tokens, "me", ["runs:read"])
    nowhere = {"TEMPORAL_ADDRESS": "127.0.0.1:1"}
    monkeypatch.setenv("TEMPORAL_ADDRESS", nowhere["TEMPORAL_ADDRESS"])
    async with served(create_app(Settings(tokens_file=tokens), {"gated": gated()})) as api:
        at = {"ABEYANCE_URL": api.url, **nowhere}
        code, _, err = await called("show", "any", **at)
        assert (code, "ABEYANCE_TOKEN is not set" in err) == (3, True)

        code, _, err = await called("list", ABEYANCE_TOKEN="wrong", **at)
        assert (code, "the token of ABEYANCE_TOKEN was sent" in err) == (3, True)
        assert "unauthenticated" in err
        code, _, err = await called("--as", "ada", "list", ABEYANCE_TOKEN=right, **at)
        assert (code, "; leave out --as: it is for an API without" in err) == (3, True)
        code, _, err = await called(
            "graph", "show", "gated", "--json", ABEYANCE_TOKEN="wrong", **at
        )
        assert (code, json.loads(err)["code"]) == (3, "unauthenticated")

        code, _, err = await called("pause", "any", ABEYANCE_TOKEN=right, **at)
        assert (code, "runs:control" in err) == (3, True)
        code, out, err = await called("show", "any", "--json", ABEYANCE_TOKEN=right, **at)
        assert (code, out, json.loads(err)["code"]) == (4, "", "unavailable")


def test_a_full_output_is_an_error_and_a_closed_one_is_not() -> None:
    def done(redirected: str) -> tuple[int, str]:
        source = f"{sys.executable} -m abeyance --help {redirected}"
        shell = subprocess.run(["sh", "-c", source], capture_output=True, text=True, check=False)
        return shell.returncode, shell.stderr

    full = "abeyance: the output cannot be written (No space left on device)\n"
    assert done("> /dev/full") == (1, full)
    assert done(">&-") == (0, "")


def test_a_closed_input_is_an_empty_one() -> None:
    source = f"{sys.executable} -m abeyance run refund --input - <&-"
    done = subprocess.run(["sh", "-c", source], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert done.stderr.startswith("abeyance: --input: '' is not JSON")


@pytest.mark.parametrize("encoding", ["latin-1", "utf-8"])
def test_json_keeps_its_meaning_whatever_the_terminal_can_encode(encoding: str) -> None:
    source = (
        "import typer\n"
        "from abeyance.cli import main\n"
        "main.run = lambda: typer.echo('\"Gr\u00f6\u00dfe \u6c34 \U0001f600\"') or 0\n"
        "main.main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", source],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": encoding},
        check=True,
    )

    assert json.loads(done.stdout.decode(encoding)) == "Gr\u00f6\u00dfe \u6c34 \U0001f600"


def test_tables_are_plain_if_rich_is_not_installed(place: Place) -> None:
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
