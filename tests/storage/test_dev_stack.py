"""`abeyance dev` keeps large values below its data directory, and shows them in Temporal's UI."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import httpx
import pytest
from dev_stack import Place, Stack, variables_of

pytestmark = pytest.mark.slow

LARGE = "letter" * 40_000
WATCH = """\
import asyncio
import sys
from abeyance import Client
from abeyance.cli.errors import leave

async def look() -> None:
    client = await Client.connect(sys.argv[1])
    print(len((await client.run("large").view()).values["label"]))

asyncio.run(look())
leave(0)
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def variable(stack: Stack, name: str) -> str:
    (found,) = re.findall(rf"\0{name}=([^\0]*)", variables_of(stack.part("worker")))
    return str(found)


def stop(stack: Stack) -> None:
    stack.process.send_signal(signal.SIGTERM)
    assert stack.process.wait(timeout=15) == 0


def test_a_large_value_is_kept_beside_the_data_and_found_by_the_next_start(place: Place) -> None:
    with place.stack(data=".abeyance") as stack:
        stack.start("large", label=LARGE)
        stop(stack)
    kept = [path for path in (place.folder / ".abeyance/blobs").rglob("*") if path.is_file()]
    assert any(LARGE.encode() in path.read_bytes() for path in kept)
    # A process that starts in this folder finds the records here without a setting.
    records = place.folder / ".abeyance/records.db"
    assert records.stat().st_mode & 0o777 == 0o600

    with place.stack("--ui", data=".abeyance") as stack:
        assert stack.answer("large", 3).status_code == 200
        assert stack.view("large", "completed")["result"]["label"] == LARGE
        # A client that starts in the same folder finds the storage without a setting.
        done = place.python("-c", WATCH, stack.temporal)
        assert (done.stdout, done.stderr) == (f"{len(LARGE)}\n", "")

        words = (Path("/proc") / str(stack.part("start-dev")) / "cmdline").read_text().split("\0")
        codec = words[words.index("--ui-codec-endpoint") + 1]
        page = {"Origin": stack.ui, "Content-Type": "application/json"}
        answer = httpx.post(f"{codec}/decode", json={"payloads": []}, headers=page)
        assert answer.json() == {"payloads": []}
        assert answer.headers["Access-Control-Allow-Origin"] == stack.ui


def test_an_in_memory_stack_deletes_its_blobs_when_it_stops(place: Place) -> None:
    with place.stack("--in-memory") as stack:
        stack.start("large", label=LARGE)
        folder = Path(variable(stack, "ABEYANCE_STORAGE"))
        assert [path for path in folder.rglob("*") if path.is_file()]
        records = Path(variable(stack, "ABEYANCE_DATABASE_URL").removeprefix("sqlite:///"))
        assert records.is_file()
        stop(stack)

    assert not folder.exists()
    assert not records.exists()
    assert not (place.folder / "data/blobs").exists()


def test_a_storage_of_ones_own_is_used(place: Place) -> None:
    place.environment = {**place.environment, "ABEYANCE_STORAGE": "elsewhere"}
    with place.stack("--in-memory") as stack:
        stack.start("large", label=LARGE)
        stop(stack)

    assert [path for path in (place.folder / "elsewhere").rglob("*") if path.is_file()]
