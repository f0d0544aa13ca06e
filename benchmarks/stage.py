"""What contenders run on: a Temporal server and workers, as processes of their own.

The server is started as `abeyance dev` starts it (one shard that looks for work as often as it likes,
SQLite with a write-ahead log), new for every trial, so that no trial finds what another one left.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

from abeyance import devserver
from abeyance.claim import free_ports
from abeyance.leash import STDIN, leashed

_HERE: Final = Path(__file__).parent
_READY_SECONDS: Final = 30.0


class Processes:
    """The processes that work for a contender, by what they do; this one is the `client`."""

    def __init__(self, **others: int) -> None:
        self._others = others

    def cpu_seconds(self) -> Mapping[str, float]:
        """How much processor time each has taken so far. Others are known on Linux only."""
        spent = {"client": time.process_time()}
        for name, pid in self._others.items():
            stat = Path(f"/proc/{pid}/stat")
            if stat.exists():
                # The name of the program, in brackets, may hold spaces; user and system time are the
                # 12th and 13th field after it.
                fields = stat.read_text(encoding="utf-8").rpartition(")")[2].split()
                ticks = int(fields[11]) + int(fields[12])
                spent[name] = ticks / os.sysconf("SC_CLK_TCK")
        return spent


class Server:
    """A Temporal server that is up."""

    def __init__(self, port: int, pid: int) -> None:
        self.address = f"{devserver.HOST}:{port}"
        self.pid = pid


@asynccontextmanager
async def temporal_server(folder: Path) -> AsyncIterator[Server]:
    """A Temporal server with its data in a folder, until the context ends."""
    port, ui_port = free_ports(devserver.HOST, {"server": 0, "ui": 0}).values()
    command = devserver.command(
        devserver.binary(), port=port, ui_port=ui_port, database=folder / "temporal.db"
    )
    with _process(command, os.environ, folder / "server.log") as pid:
        await devserver.until_set_up(port, timeout=_READY_SECONDS)
        yield Server(port, pid)


@contextmanager
def worker(server: Server, program: str, folder: Path, *, app: str | None = None) -> Iterator[int]:
    """A worker in a Python process, until the context ends; what runs it is `program`."""
    here = [str(_HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(here),
        "TEMPORAL_ADDRESS": server.address,
        **({} if app is None else {"ABEYANCE_APP": app}),
    }
    with _process([sys.executable, "-c", program], environment, folder / "worker.log") as pid:
        yield pid


@contextmanager
def _process(command: Sequence[str], environment: Mapping[str, str], log: Path) -> Iterator[int]:
    with log.open("wb") as out:
        process = subprocess.Popen(
            leashed(os.getpid(), command),
            env=environment,
            stdin=STDIN,
            stdout=out,
            stderr=out,
        )
    try:
        yield process.pid
    except BaseException as error:
        said = log.read_text(encoding="utf-8", errors="replace").strip()
        if said:
            error.add_note(f"the end of {log.name}: {said[-2000:]}")
        raise
    finally:
        process.kill()
        process.wait()
