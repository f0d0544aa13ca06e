"""`ctx.file`: pictures and documents that a question shows."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from abeyance import START, Context, Graph
from abeyance.errors import Fatal
from abeyance.storage.blobs import MemoryBlobs
from abeyance.storage.run_files import MAX_BYTES, store
from abeyance.testing import InMemoryRun


class State(BaseModel):
    seen: dict[str, str] = {}


async def test_the_same_file_is_the_same_reference_in_every_entry_of_a_visit() -> None:
    stored: list[dict[str, str]] = []
    graph = Graph("one", state=State)

    @graph.node
    async def work(state: State, ctx: Context) -> dict[str, Any]:
        stored.append(await ctx.file("scan.pdf", b"%PDF-1.7"))
        await ctx.interrupt("q", payload=stored[-1])
        return {"seen": stored[-1]}

    graph.edge(START, "work")
    trial = InMemoryRun(graph)
    await trial.start()
    (asked,) = await trial.interrupts()
    await trial.respond(response="yes")

    assert stored[0] == stored[1] == asked.payload == trial.values["seen"]
    assert (asked.payload["name"], asked.payload["type"]) == ("scan.pdf", "application/pdf")
    assert await trial.file(asked.payload) == b"%PDF-1.7"


@pytest.mark.parametrize(
    ("name", "data", "type_", "fault"),
    [
        ("", b"", None, "no name of a file"),
        ("a/b.png", b"", None, "no name of a file"),
        ("a\u202egnp.exe", b"", None, "no name of a file"),
        ("a.png", b"", "image/png; charset=x\r\n", "no media type"),
        ("a.png", b"x" * (MAX_BYTES + 1), None, "at most 10485760"),
    ],
)
async def test_what_cannot_be_a_file_is_refused(
    name: str, data: bytes, type_: str | None, fault: str
) -> None:
    with pytest.raises(Fatal, match=fault):
        await store(MemoryBlobs(), "run-1", name, data, type_)


async def test_a_file_of_an_unknown_kind_is_only_bytes() -> None:
    stored = await store(MemoryBlobs(), "run-1", "data.nothing", b"", None)

    assert stored["type"] == "application/octet-stream"
