"""The agent deletes real files after a person has agreed, and never one outside the folder."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from abeyance import START, Agent, Graph
from abeyance.testing import InMemoryRun
from examples.agents import deleting_files, trusted_deleting
from examples.agents.folder import VARIABLE, delete_files
from examples.agents.model import Answer, Info, Messages, call, results, say

LONG_AGO = time.time() - 30 * 86_400


@pytest.fixture
def litter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with two old logs, one of today and a note, and put a secret outside of it."""
    folder = tmp_path / "litter"
    folder.mkdir()
    for name in ("a.log", "b.log", "notes.txt"):
        (folder / name).write_text(name)
        os.utime(folder / name, (LONG_AGO, LONG_AGO))
    (folder / "c.log").write_text("of today")
    (tmp_path / "secret.log").write_text("outside")
    monkeypatch.setenv(VARIABLE, str(folder))
    return folder


def left(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


async def answered(graph: Graph, answers: Sequence[Any]) -> tuple[InMemoryRun, list[str]]:
    """Answer the questions of a run one by one; return the run and its prompts."""
    run, prompts = InMemoryRun(graph), []
    await run.start()
    for answer in answers:
        (asked,) = await run.interrupts()
        prompts.append(asked.prompt)
        await run.respond(asked.id, answer)
    assert run.status == "completed"
    return run, prompts


async def test_a_hook_and_then_the_tool_ask_before_files_are_deleted(litter: Path) -> None:
    run, prompts = await answered(deleting_files.graph, ["y", "y"])

    assert prompts == [
        "Delete a.log, b.log, c.log (y/n)?",
        "Changed within the last day: c.log. Delete them all the same (y/n)?",
    ]
    assert run.values["report"] == "Deleted: a.log, b.log, c.log."
    assert left(litter) == ["notes.txt"]


async def test_a_file_that_was_fresh_when_it_was_asked_about_is_kept_however_late_the_answer(
    litter: Path,
) -> None:
    run = InMemoryRun(deleting_files.graph)
    await run.start()
    await run.respond("delete", "y")
    os.utime(litter / "c.log", (LONG_AGO, LONG_AGO))
    await run.respond("fresh", "n")

    assert run.values["report"] == "Deleted: a.log, b.log. Kept: c.log."
    assert left(litter) == ["c.log", "notes.txt"]


@pytest.mark.parametrize("name", ["../secret.log", "{outside}/secret.log", "link.log", ".", ""])
async def test_a_file_outside_the_folder_is_refused_before_anybody_is_asked(
    litter: Path, name: str
) -> None:
    outside = litter.parent
    (litter / "link.log").symlink_to(outside / "secret.log")
    said = []

    def greedy(messages: Messages, info: Info) -> Answer:
        if not (found := results(messages)):
            return call("delete_files", names=[name.format(outside=outside), "a.log"])
        said.append(found[-1].content)
        return say("I tried.")

    hooks = [deleting_files.ApprovalHook()]
    graph = Graph("greedy", state=deleting_files.Tidying)
    agent = Agent("greedy", model=greedy, tools=[delete_files], hooks=hooks)
    graph.agent("tidy", agent, input="request", output="report")
    graph.edge(START, "tidy")
    run = InMemoryRun(graph)
    await run.start()

    assert run.status == "completed"
    assert "is not a file of the folder" in said[0]
    assert (outside / "secret.log").exists()
    assert left(litter) == ["a.log", "b.log", "c.log", "link.log", "notes.txt"]


async def test_a_person_who_trusts_is_not_asked_again_but_by_the_tool(litter: Path) -> None:
    run, prompts = await answered(trusted_deleting.graph, ["t", "y"])

    assert prompts == [
        "Delete a.log (y, n, or t to trust me from now on)?",
        "Changed within the last day: c.log. Delete them all the same (y/n)?",
    ]
    assert run.values["report"] == "Deleted: a.log, b.log, c.log."
    assert left(litter) == ["notes.txt"]
