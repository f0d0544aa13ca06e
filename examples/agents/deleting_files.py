"""Deleting files: a hook asks before real files are deleted, and so does the tool, about fresh ones.

    EXAMPLE_FOLDER=/tmp/litter abeyance dev examples.agents.deleting_files:graph
    abeyance run deleting_files --run-id tidy --wait
    abeyance respond tidy '"y"'

The hook knows the call and asks for whoever put it there; the tool knows the files. Both questions are
about one call. A name outside the folder is refused before anybody is asked.
"""

from __future__ import annotations

from pydantic import BaseModel

from abeyance import START, Agent, BeforeToolCall, Graph
from examples.agents.folder import delete_files, list_files
from examples.agents.model import Answer, Info, Messages, call, model, results, say


class Tidying(BaseModel):
    """What is to be deleted, and what became of it."""

    request: str = "Delete the logs, nothing else."
    report: str | None = None


class ApprovalHook:
    """Asks a person before files are deleted."""

    async def before_tool_call(self, event: BeforeToolCall) -> None:
        """Deny the call unless a person says y."""
        if event.tool != "delete_files":
            return
        names = event.args["names"]
        answer = await event.interrupt(
            "delete",
            prompt=f"Delete {', '.join(names)} (y/n)?",
            reason={"names": names},
            response={"enum": ["y", "n"]},
        )
        if answer != "y":
            event.cancel_tool = "A person denied permission to delete these files."


def script(messages: Messages, info: Info) -> Answer:
    """What a model would say."""
    match results(messages):
        case []:
            return call("list_files")
        case [listed]:
            names = [each["name"] for each in listed.content if each["name"].endswith(".log")]
            return call("delete_files", names=names) if names else say("There are no logs.")
        case found:
            return say(_told(found[-1].content))


def _told(result: object) -> str:
    match result:
        case {"deleted": list(deleted), "kept": list(kept)}:
            left = f" Kept: {', '.join(kept)}." if kept else ""
            return f"Deleted: {', '.join(deleted) or 'nothing'}.{left}"
        case _:
            return f"Nothing was deleted. {result}"


cleaner = Agent(
    "cleaner",
    model=model(script),
    instructions="You tidy a folder. List its files, delete what is wanted in one call, and report. What "
    "a person denies you do not try again.",
    tools=[list_files, delete_files],
    hooks=[ApprovalHook()],
)

graph = Graph(
    "deleting_files", state=Tidying, description="Real files, deleted when a person agrees."
)
graph.agent("tidy", cleaner, input="request", output="report")
graph.edge(START, "tidy")
