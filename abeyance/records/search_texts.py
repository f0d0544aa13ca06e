"""The texts of runs and of questions that a search looks in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from abeyance import views


def of_run(view: views.RunView) -> str:
    """Return what a search of runs looks in."""
    labelled = (f"{name}={value}" for name, value in view.labels.items())
    return searchable(
        view.run_id, view.graph, view.conversation_id, view.started_by, view.sent_by, *labelled
    )


def of_question(of: views.RunView, view: views.InterruptView, *, is_sealed: bool) -> str:
    """Return what a search of questions looks in; not in texts that are sealed elsewhere."""
    named = [*view.assignees, view.answered_by, view.requested_capability]
    clear = searchable(view.id, view.name, view.address, *named, of_run(of))
    if is_sealed:
        return clear
    return f"{clear}\n{searchable(view.prompt, *_texts(view.reason))}"


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case Mapping():
            for each in value.values():
                yield from _texts(each)
        case list():
            for each in value:
                yield from _texts(each)
        case bool() | None:
            pass
        case _:
            yield str(value)


def searchable(*texts: str | None) -> str:
    """Return texts as a search compares them: without regard to upper and lower case.

    What no database holds in a text, which JSON may, is a question mark.
    """
    folded = "\n".join(text.casefold() for text in texts if text)
    return folded.replace("\0", "?").encode(errors="replace").decode()
