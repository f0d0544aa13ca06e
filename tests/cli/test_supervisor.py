"""A program that dies is restarted, but not forever, and ends with the process that started it."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from dev_stack import until, words_of

from abeyance.dev import parent_death
from abeyance.dev.supervisor import Program, Supervisor, together
from abeyance.errors import SettingsError, Unavailable

NAME = "clerk"
PARENT = """\
import os, subprocess, sys
from abeyance.dev.parent_death import leashed
SLEEP = ["/bin/sleep", "300"]
WATCHED = (
    "import os; from abeyance.dev.parent_death import watch; watch(); "
    f"os.execv({SLEEP[0]!r}, {SLEEP})"
)
child = subprocess.Popen([%s], stdin=subprocess.PIPE)
print(child.pid, flush=True)
child.wait()
"""


def program(folder: Path, code: str, *, patience: float = 5, **fields: Any) -> Program:
    """Return a program of a few lines of Python."""
    return Program(
        name=NAME,
        command=[sys.executable, "-c", code],
        directory=folder,
        environment=os.environ,
        log=folder / "log.txt",
        patience=patience,
        **fields,
    )


async def never() -> None:
    await asyncio.get_running_loop().create_future()


async def test_a_program_that_dies_six_times_in_a_minute_is_given_up_with_its_last_words(
    tmp_path: Path,
) -> None:
    announced: list[str] = []
    code = "open('starts', 'a').write('x'); raise SystemExit('the shop is closed')"
    kept = Supervisor(program(tmp_path, code), announced.append)

    with pytest.raises(
        Unavailable,
        match=r"exit code 1: the shop is closed\. It stopped 6 times within a minute.*log\.txt",
    ):
        async with together(kept.keep()):
            await never()

    assert (tmp_path / "starts").read_text() == "x" * 6
    assert sum("; it is being restarted" in text for text in announced) == 5
    assert sum("is running again" in text for text in announced) == 5


async def test_wrong_settings_are_not_tried_twice(tmp_path: Path) -> None:
    code = "import sys; print('abeyance: no such graph'); sys.exit(2)"
    kept = Supervisor(program(tmp_path, code, wrong_settings=2), print)

    with pytest.raises(SettingsError, match=r"^no such graph$"):
        async with together(kept.keep()):
            await never()


async def test_a_program_that_does_not_listen_is_killed_with_what_it_has_started(
    tmp_path: Path,
) -> None:
    code = (
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)'])\n"
        "open('child.tmp', 'w').write(str(child.pid))\n"
        "import os; os.rename('child.tmp', 'child')\n"
        "time.sleep(300)\n"
    )
    kept = Supervisor(program(tmp_path, code, patience=0.3), print)

    async with together(kept.keep()):
        async with asyncio.timeout(20):
            while not (tmp_path / "child").exists():
                await asyncio.sleep(0.02)
        pid = kept.pid
        assert pid is not None

    grandchild = int((tmp_path / "child").read_text())
    until(lambda: not words_of(pid) and not words_of(grandchild), "both to end")


async def test_an_error_beside_a_program_ends_it_and_is_raised_unchanged(tmp_path: Path) -> None:
    kept = Supervisor(program(tmp_path, "import time; time.sleep(300)"), print)
    pids: list[int] = []

    async def ask() -> None:
        while kept.pid is None:
            await asyncio.sleep(0.02)
        pids.append(kept.pid)
        raise Unavailable("nobody answers")

    with pytest.raises(Unavailable, match=r"^nobody answers$"):
        async with together(kept.keep()):
            await ask()

    assert not words_of(*pids)


@pytest.mark.parametrize(
    "start",
    [
        pytest.param(
            "*leashed(os.getpid(), SLEEP)",
            marks=pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux does it"),
            id="by the kernel",
        ),
        pytest.param("sys.executable, '-c', WATCHED", id="by a copy beside it"),
    ],
)
def test_a_program_on_a_leash_ends_when_its_parent_is_killed(start: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT % start], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        until(lambda: words_of(child)[:1] == ["/bin/sleep"], "the program to run")
        parent.kill()

    until(lambda: not words_of(child), "the program to end")


def test_a_program_whose_parent_has_gone_is_not_started() -> None:
    gone = 2**22 + 1  # larger than any process number

    done = subprocess.run(
        parent_death.leashed(gone, ["/bin/echo", "started"]),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )

    assert done.returncode != -signal.SIGKILL
    assert (done.returncode, done.stdout) == (1, "")
