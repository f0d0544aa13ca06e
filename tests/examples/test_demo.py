"""`make demo`: a payment run whose worker is killed, an agent that asks, and a payout by two."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from dev_stack import Place, living, until

pytestmark = pytest.mark.slow

DEMO = ("-m", "examples.demo")
HOME = str(Path(__file__).parents[2])


def written(place: Place) -> dict[str, Path]:
    (folder,) = (place.folder / "out").iterdir()
    return {file.name: file for file in folder.iterdir()}


def processes_in(place: Place) -> list[int]:
    """Return the processes that still run of those started with this place's temporary folder."""
    mark = f"--db-filename {place.folder}"
    return [pid for pid, words in living() if mark in " ".join(words)]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    (tmp_path / "tmp").mkdir()
    return Place(tmp_path)


@pytest.mark.parametrize("answer", ["approve", "reject"])
def test_the_demo_ends_as_answered(place: Place, answer: str) -> None:
    # Only one of the two demos has Temporal's UI, and only that one prints the UI's address.
    ui = ["--ui"] if answer == "approve" else []
    done = place.python(
        *DEMO,
        *("--answer", answer),
        *ui,
        seconds=100,
        TMPDIR=str(place.folder / "tmp"),
        PYTHONPATH=HOME,
    )

    assert (done.returncode, done.stderr) == (0, "")
    for word in ("kill -9", "survived", "/runs/invoices-"):
        assert word in done.stdout
    assert ("/namespaces/default/workflows/" in done.stdout) is bool(ui)
    files = written(place)
    assert ("ledger.csv" in files) is (answer == "approve")
    assert any(name.startswith("pain.001-") for name in files) is (answer == "approve")
    assert f"Answer: {answer[:6]}" in files["report.txt"].read_text()
    logs = [] if answer == "approve" else ["monday.log", "tuesday.log"]
    assert "Delete monday.log, tuesday.log (y/n)?" in done.stdout
    assert sorted(each.name for each in files["litter"].glob("*.log")) == logs
    assert (files["litter"] / "notes.txt").exists()
    assert "interrupt.opened received; the signature of msg_" in done.stdout
    is_yes = answer == "approve"
    assert ("approves 90 instead of 120; that is what runs" in done.stdout) is is_yes
    assert ("a yes by ada; calls that ran unasked: 1" in done.stdout) is is_yes
    assert ("40  granted   under what is remembered of ada" in done.stdout) is is_yes
    assert "asked for in all: 190 euros" in done.stdout
    api = done.stdout.split("ready: API ")[1].split(",")[0].split("\n")[0]
    assert f"for group:managers: {api}/inbox#payout-" in done.stdout
    assert "ada: yes; 1 missing" in done.stdout
    assert "bob: yes; held until " in done.stdout
    assert "bob takes that back; the question is open again, 1 missing" in done.stdout
    assert ("paid 900 to the printer" in done.stdout) is (answer == "approve")
    assert [*(place.folder / "tmp").iterdir()] == []
    assert processes_in(place) == []


def test_the_demo_without_an_answer_asks_in_the_terminal(place: Place) -> None:
    ours, theirs = pty.openpty()
    heard = b""

    def says(text: str) -> bool:
        nonlocal heard
        heard += os.read(ours, 65_536)
        return text.encode() in heard

    with subprocess.Popen(
        [sys.executable, *DEMO],
        cwd=place.folder,
        env={
            **place.environment,
            "TMPDIR": str(place.folder / "tmp"),
            "TERM": "dumb",
            "PYTHONPATH": HOME,
        },
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    ) as demo:
        os.close(theirs)
        try:
            until(lambda: says("approve or reject: "), "the question", seconds=90)
            os.write(ours, b"perhaps\n")
            until(lambda: says("Please type approve or reject."), "another try")
            os.write(ours, b"reject\n")
            until(lambda: says("Why (may be empty): "), "the reason")
            os.write(ours, b"called them\n")
            until(lambda: says("Your answer, yes or no: "), "the agent's question")
            os.write(ours, b"maybe\n")
            until(lambda: says("Please type yes or no."), "another try")
            os.write(ours, b"n\n")
            until(lambda: says("Ada's answer, approve or reject: "), "the refunds")
            os.write(ours, b"a\n")
            until(lambda: says("Bob's answer, approve or reject: "), "the vote taken back")
            os.write(ours, b"approve\n")
            until(lambda: says("Press Enter to stop it."), "the end")
            assert processes_in(place) != []
            os.write(ours, b"\n")
            assert demo.wait(timeout=15) == 0
        finally:
            demo.kill()
            os.close(ours)

    files = written(place)
    assert "Answer: rejected: called them" in files["report.txt"].read_text()
    assert len([*files["litter"].iterdir()]) == 4
    assert b"paid 900 to the printer" in heard
    assert processes_in(place) == []


def test_the_demo_leaves_out_parts_with_missing_extras(
    place: Place,
) -> None:
    (place.folder / "sitecustomize.py").write_text(
        "import sys\nsys.modules['pydantic_ai'] = sys.modules['apprise'] = None\n"
    )
    done = place.python(
        *DEMO,
        *("--answer", "approve"),
        seconds=100,
        TMPDIR=str(place.folder / "tmp"),
        PYTHONPATH=os.pathsep.join([str(place.folder), HOME]),
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert "pip install 'abeyance[agents]'" in done.stdout
    assert "pip install 'abeyance[people]'" in done.stdout
    assert "report.txt" in written(place)
    assert "litter" not in written(place)
    assert "vote" not in done.stdout


def test_the_demo_without_a_terminal_says_how_to_answer(place: Place) -> None:
    done = place.python(*DEMO, PYTHONPATH=HOME)

    assert (done.returncode, done.stdout) == (2, "")
    assert "--answer approve" in done.stderr
