"""Deleting files with trust: a person may say "t", and is not asked again in this run.

    EXAMPLE_FOLDER=/tmp/litter abeyance dev examples.agents.trusted_deleting:graph
    abeyance run trusted_deleting --run-id tidy --wait
    abeyance respond tidy '"t"'

The trust stands in the agent's state, which is a part of the run: it holds over every later call, and
over the end of every process, and ends with the run. A rejection is not remembered.
"""

from __future__ import annotations

from pydantic import BaseModel

from abeyance import START, Agent, BeforeToolCall, Graph
from examples.agents.folder import delete_files, list_files
from examples.agents.model import Answer, Info, Messages, call, model, results, say


class Tidying(BaseModel):
    """What is to be deleted, and what became of it."""

    request: str = "Delete the logs, one after the other."
    report: str | None = None


class TrustingHook:
    """Asks a person before files are deleted, until they trust the agent."""

    async def before_tool_call(self, event: BeforeToolCall) -> None:
        """Deny the call unless a person says y, or has said t."""
        if event.tool != "delete_files" or event.agent_state.get("trusted"):
            return
        names = event.args["names"]
        answer = await event.interrupt(
            "delete",
            prompt=f"Delete {', '.join(names)} (y, n, or t to trust me from now on)?",
            reason={"names": names},
            response={"enum": ["y", "n", "t"]},
        )
        if answer == "n":
            event.cancel_tool = "A person denied permission to delete these files."
        event.agent_state["trusted"] = answer == "t"


def script(messages: Messages, info: Info) -> Answer:
    """What a model would say: one call for each log."""
    if not (found := results(messages)):
        return call("list_files")
    logs = [each["name"] for each in found[0].content if each["name"].endswith(".log")]
    done = found[1:]
    if len(done) < len(logs):
        return call("delete_files", names=[logs[len(done)]])
    gone = [name for part in done if part.went_well for name in part.content["deleted"]]
    return say(f"Deleted: {', '.join(gone) or 'nothing'}.")


cleaner = Agent(
    "cleaner",
    model=model(script),
    instructions="You tidy a folder. List its files, delete what is wanted, one file in each call, one "
    "call at a time, and report. What a person denies you do not try again.",
    tools=[list_files, delete_files],
    hooks=[TrustingHook()],
)

graph = Graph("trusted_deleting", state=Tidying, description="A person is asked until they trust.")
graph.agent("tidy", cleaner, input="request", output="report")
graph.edge(START, "tidy")
