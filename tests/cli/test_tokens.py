"""`abeyance token` changes the file of hashed tokens, also from many processes at a time."""

import json
import stat
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from dev_stack import run


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "tokens.json"
    monkeypatch.setenv("ABEYANCE_TOKENS_FILE", str(file))
    return file


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run(["token", *arguments])
    return code, *capsys.readouterr()


def entries(file: Path) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = json.loads(file.read_text())
    return listed


def test_a_capability_that_is_written_almost_like_one_of_the_api_is_pointed_out(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, _, err = call(capsys, "add", "ada", "--can", "run:read,runs:respond,runs:approve,runs:raed")

    assert entries(file)[0]["capabilities"] == [
        *("run:read", "runs:respond", "runs:approve", "runs:raed"),
    ]
    for word in ("run:read", "runs:raed"):
        assert f"{word!r} is a capability of a graph at most: did you mean 'runs:read'?" in err
    assert err.count("did you mean") == 2


def test_a_token_is_printed_once_and_stored_as_its_hash(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = call(capsys, "add", "ada", "--can", "runs:read,runs:respond", "--can", "x")
    token = out.strip()

    assert code == 0
    assert "is shown only now" in err
    assert token not in err + file.read_text()
    assert entries(file) == [
        {
            "subject": "ada",
            "sha256": sha256(token.encode()).hexdigest(),
            "capabilities": ["runs:read", "runs:respond", "x"],
        }
    ]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in file.parent.iterdir()] == ["tokens.json"]


def test_a_changed_file_is_for_the_same_readers_as_before(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call(capsys, "add", "ada", "--can", "runs:read")
    file.chmod(0o640)

    assert call(capsys, "revoke", "ada")[0] == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_the_list_shows_who_may_do_what_and_no_token(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    groups, reads = ("--group", "finance"), ("--reads", "team=eu", "--reads", "team=us")
    token = call(capsys, "add", "ada", "--can", "runs:read", *groups, *reads)[1].strip()
    _, out, _ = call(capsys, "list")

    heads, row = map(str.split, out.splitlines())
    assert heads == ["NAME", "HASH", "CAN", "GROUPS", "READS"]
    digest = sha256(token.encode()).hexdigest()[:12]
    assert row == ["ada", digest, "runs:read", "finance", "team=eu", "team=us"]


def test_revoke_removes_one_token_of_a_person_by_its_hash(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("ada", "ada", "bob"):
        call(capsys, "add", name, "--can", "runs:read")
    first, second, other = entries(file)

    assert call(capsys, "revoke", "ada", "--hash", first["sha256"][:12].upper())[0] == 0
    assert entries(file) == [second, other]
    assert call(capsys, "revoke", "ada")[0] == 0
    assert entries(file) == [other]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["revoke", "eve"], "has no token of 'eve'"),
        (["revoke", "ada", "--hash", "0123456789"], "whose hash begins with '0123456789'"),
        (["revoke", "ada", "--hash", "01"], "too short"),
        (["add", "timeout", "--can", "x"], "reserved"),
        (["add", "group:finance", "--can", "x"], "reserved"),
        (["add", " ", "--can", "x"], "not a subject"),
        (["add", "Ada", "--can", "x"], "cannot have both subjects 'Ada' and 'ada'"),
        (["add", "eve", "--can", ","], "no capability"),
        (["add", "eve", "--can", "a\tb"], "not a capability"),
        (["add", "eve", "--can", "x", "--group", "a\tb"], "not a group"),
        (["add", "eve", "--can", "x", "--reads", "team"], "write name=value"),
        (["add", "eve", "--can", "x", "--reads", "a b=c"], "cannot have these groups or reads"),
    ],
)
def test_a_refused_token_command_changes_nothing(
    file: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    call(capsys, "add", "ada", "--can", "runs:read")
    before = file.read_bytes()
    code, out, err = call(capsys, *arguments)

    assert (code, out) == (2, "")
    assert said in err
    assert file.read_bytes() == before


def test_a_file_that_is_not_one_of_tokens_is_left_alone(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text('{"subject": "ada"}')

    assert call(capsys, "add", "ada", "--can", "x")[0] == 2
    assert file.read_text() == '{"subject": "ada"}'


def test_token_commands_without_a_file_say_how_to_name_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.delenv("ABEYANCE_TOKENS_FILE", raising=False)
    code, _, err = call(capsys, "list")

    assert (code, "--file" in err) == (2, True)
    assert call(capsys, "add", "ada", "--can", "x", "--file", str(tmp_path / "other.json"))[0] == 0


def test_processes_that_add_at_the_same_time_lose_no_token(file: Path) -> None:
    # The command line takes longer to import than to add tokens, so each process calls the function.
    adds = (
        "import pathlib, sys; from abeyance.token_file import add_token\n"
        "for number in range(5): add_token(pathlib.Path(sys.argv[1]), sys.argv[2], [f'c{number}'])"
    )
    adding = [subprocess.Popen([sys.executable, "-c", adds, str(file), name]) for name in "abc"]

    assert [process.wait(60) for process in adding] == [0] * 3
    assert sorted(entry["subject"] for entry in entries(file)) == [*"aaaaabbbbbccccc"]
