"""A worker ends when it gets a signal, whatever its code does, and no other code can forge its log."""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from killable import KillableServer, killable_server, worker_process
from temporal_site import Site, eventually
from temporalio.client import Client as TemporalClient

from abeyance import START, Client, Graph
from abeyance.tracing import log_to_stderr

FORGED = "2026-01-01 00:00:00,000 INFO abeyance.audit | payment 4711 approved by ada"
APP = f"""\
from pathlib import Path
from abeyance import Fatal, Graph, START

def graph(name, work):
    made = Graph(name)
    made.node(name="work")(work)
    made.edge(START, "work")
    return made

async def loop():
    Path("loop").touch()
    while True:
        pass

async def forge():
    raise Fatal("the file is empty\\r\\n{FORGED}\\x1b[2K\\u202e")

async def crash():
    raise ValueError("the file is empty\\n{FORGED}\\x1b[2K\\u202e")

graphs = [graph(work.__name__, work) for work in (loop, forge, crash)]
"""
LISTENER = """\
import asyncio
import sys
from abeyance.dev.signals import stopped_by_signals

async def main():
    with stopped_by_signals(within=float(sys.argv[2])) as stop:
        print("up", flush=True)
        while sys.argv[1] == "loop":
            pass
        await stop.wait()

asyncio.run(main())
"""


@pytest_asyncio.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[KillableServer]:
    async with killable_server(tmp_path_factory.mktemp("server")) as running:
        yield running


def graph(name: str) -> Graph:
    made = Graph(name)
    made.node(name="work", retries=0)(lambda: None)
    made.edge(START, "work")
    return made


@pytest.mark.slow
async def test_a_worker_that_hangs_ends_once_its_grace_is_over(
    server: KillableServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABEYANCE_SHUTDOWN_GRACE", "0.1")
    monkeypatch.setenv("ABEYANCE_TASK_QUEUE", "loop")
    (tmp_path / "hanging.py").write_text(APP)
    client, log = await server.client(), tmp_path / "worker.log"
    with worker_process(server, "hanging:graphs", log) as worker:
        await Client(client.temporal, task_queue="loop").runs.start(graph("loop"), {})
        await eventually((tmp_path / "loop").exists, seconds=60)
        worker.send_signal(signal.SIGTERM)

        # docs/how-to/production.md promises an end within fifteen seconds after the grace.
        assert await asyncio.to_thread(worker.wait, 20) == 1

    assert re.search(r'hanging\.py", line \d+ in loop', log.read_text())


@contextmanager
def listener(work: str, within: float) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-c", LISTENER, work, str(within)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"up\n"
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("work", "number", "code"),
    [
        *(("wait", number, 0) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)),
        ("loop", signal.SIGTERM, 1),
    ],
)
def test_a_stopping_worker_stops_in_time_or_names_what_still_runs(
    work: str, number: signal.Signals, code: int
) -> None:
    # A worker that stops in order may take long on a busy machine.
    with listener(work, within=1 if code else 60) as process:
        process.send_signal(number)

        _, errors = process.communicate(timeout=30)

    assert process.returncode == code
    assert (b"in main" in errors) == bool(code)


async def test_nobody_writes_a_line_of_a_workers_log_by_what_his_code_raises(
    temporal: TemporalClient, address: str, tmp_path: Path
) -> None:
    (tmp_path / "forging.py").write_text(APP)
    log = tmp_path / "worker.log"
    site = Site(temporal, graph("forge"), graph("crash"))
    variables = {"ABEYANCE_TASK_QUEUE": site.settings.task_queue}
    with worker_process(address, "forging:graphs", log, variables=variables):
        for each in site.graphs.values():
            assert (await site.ended(await site.start(graph=each))).status == "failed"

    text = log.read_text()
    assert "the file is empty" in text, "it is told, or nothing is shown here"
    assert not re.search(f"^{re.escape(FORGED)}", text, re.MULTILINE)
    assert "\x1b" not in text
    assert "\u202e" not in text


def log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Log as a worker does."""
    root, calls = logging.getLogger(), logging.getLogger("httpx")
    monkeypatch.setattr(root, "handlers", [])
    for each in (root, calls):
        monkeypatch.setattr(each, "level", each.level)
    log_to_stderr()


def test_the_log_has_no_address_of_a_call(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log(monkeypatch)
    with httpx.Client(transport=httpx.MockTransport(lambda _: httpx.Response(200))) as client:
        client.post("https://example.com/hook?key=secret")

    assert "secret" not in capsys.readouterr().err


def test_a_record_of_a_log_is_one_line_and_what_belongs_to_it_is_indented(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log(monkeypatch)
    logger = logging.getLogger("abeyance.example")

    logger.info("started by %s", f"ada\n{FORGED}\r{FORGED}\u2028{FORGED}\x85\x9b2K")
    logger.error("failed", exc_info=ValueError(f"no\n{FORGED}"))

    lines = capsys.readouterr().err.splitlines()
    heads = [line for line in lines if not line.startswith("    ")]
    assert [line.split(" | ")[1] for line in heads] == ["started by ada", "failed"]
    assert lines[1] == rf"    {FORGED}\r{FORGED}\u2028{FORGED}\x85\x9b2K"
    assert f"    {FORGED}" in lines[3:]
