"""The one folder whose files an agent may see and delete, and the tools for it."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field

from abeyance import Fatal, ToolContext, tool

VARIABLE: Final = "EXAMPLE_FOLDER"


def folder() -> Path:
    """The folder. Raises Fatal if there is none."""
    named = os.environ.get(VARIABLE)
    if not named or not Path(named).is_dir():
        raise Fatal(
            f"{VARIABLE} is {named!r}: set it, where the worker runs, to a folder that exists"
        )
    return Path(named).resolve()


def inside(name: str) -> Path:
    """A file of the folder. Raises ValueError for whatever is outside, links that lead there too."""
    path = (folder() / name).resolve()
    if not path.is_relative_to(folder()) or path == folder() or path.is_dir():
        raise ValueError(f"{name!r} is not a file of the folder")
    return path


def _checked(name: str) -> str:
    return str(inside(name).relative_to(folder()))


FileName = Annotated[
    str,
    AfterValidator(_checked),
    Field(description="The name of a file in the folder, as it is listed."),
]
"""Held against the folder when the model's arguments are read: nobody is asked about a file elsewhere."""


@tool
def list_files() -> list[dict[str, Any]]:
    """List the files of the folder: name, size in bytes, and when each was last changed."""
    files = [
        each for each in sorted(folder().iterdir()) if each.is_file() and not each.is_symlink()
    ]
    return [
        {"name": each.name, "bytes": each.stat().st_size, "changed": _changed(each).isoformat()}
        for each in files
    ]


@tool
async def delete_files(ctx: ToolContext, names: list[FileName]) -> dict[str, list[str]]:
    """Delete files of the folder. Who deletes what was changed today is asked whether they mean it."""
    # A step, because the answer may come in a week: what they were asked about must stay what it was.
    fresh: list[str] = await ctx.step("look", _fresh, names)
    kept: list[str] = []
    if fresh:
        mean_it = await ctx.interrupt(
            "fresh",
            prompt=f"Changed within the last day: {', '.join(fresh)}. Delete them all the same (y/n)?",
            reason={"names": fresh},
            response={"enum": ["y", "n"]},
        )
        kept = fresh if mean_it != "y" else []
    deleted = [each for each in names if each not in kept]
    for each in deleted:
        # Missing is as good as deleted: another attempt may have come this far.
        inside(each).unlink(missing_ok=True)
    return {"deleted": deleted, "kept": kept}


def _changed(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)


def _fresh(names: list[str]) -> list[str]:
    yesterday = datetime.now(UTC) - timedelta(days=1)
    there = [each for each in names if inside(each).exists()]
    return [each for each in there if _changed(inside(each)) > yesterday]
