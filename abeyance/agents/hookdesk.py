"""Where one hook asks people, in one pass over one event.

It keeps count of what the hook asked, so that a hook which swallows its own question, forgets to await
it, or asks it twice is found out: what it meant to gate would otherwise go through.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

from abeyance.core.canonical import Json
from abeyance.core.outcome import Asked
from abeyance.errors import Fatal
from abeyance.nodes.interrupts import Interrupt, Suspended, lowered, typed_answer


class Desk:
    """`process` is what the hook is called, `answers` are those that people gave, by `process/name`."""

    def __init__(self, process: str = "hook", answers: Mapping[str, Json] | None = None) -> None:
        self.process = process
        self.asked: Asked | None = None
        self.fault: str | None = None
        self._answers = answers or {}
        self._begun: list[str] = []
        self._names: set[str] = set()
        self._is_closed = False

    def asking(self, interrupt: Interrupt) -> Asking:
        """A question that is asked when it is awaited."""
        self._begun.append(interrupt.name)
        return Asking(self, interrupt)

    def close(self) -> str | None:
        """The hook has ended. What it did wrong about its questions, or None."""
        self._is_closed = True
        if self.fault is None and self._begun:
            self.fault = (
                f"it called interrupt({self._begun[0]!r}) without await, so nobody was asked: write "
                "`await event.interrupt(...)`"
            )
        return self.fault

    def answer(self, interrupt: Interrupt) -> Any:
        """The answer to a question. Raises Suspended if there is none yet, and Fatal for a question that
        may not be asked.
        """
        if interrupt.name in self._begun:
            self._begun.remove(interrupt.name)
        try:
            question = self._question(interrupt)
            if question.key in self._answers:
                return typed_answer(interrupt, self._answers[question.key])
        except Exception as error:
            # Noted, because the hook may catch it and go on.
            self.fault = self.fault or str(error)
            raise
        self.asked = question
        raise Suspended([question])

    def _question(self, interrupt: Interrupt) -> Asked:
        name = interrupt.name
        if self._is_closed:
            message = f"it asks {name!r} after it has ended, where nobody can be asked any more"
            raise Fatal(message)
        question = lowered(interrupt)
        if name in self._names:
            message = (
                f"it asks {name!r} twice at one event, and the answer to one would be taken for that "
                "to the other: give each question of a hook a name of its own"
            )
            raise Fatal(message)
        if self.asked is not None:
            message = (
                f"it asks {name!r} while {self.asked.question.name!r} is not answered: a hook asks one "
                "thing at a time"
            )
            raise Fatal(message)
        if isinstance(interrupt.on_timeout, str) and interrupt.on_timeout != "halt":
            message = (
                f"it asks {name!r} with on_timeout={interrupt.on_timeout!r}; there is no node that a "
                "hook could go to: write 'halt' or {\"default\": answer}"
            )
            raise Fatal(message)
        self._names.add(name)
        return question


class Asking:
    """A question that a hook is about to ask."""

    def __init__(self, desk: Desk, interrupt: Interrupt) -> None:
        self._desk = desk
        self._interrupt = interrupt

    def __await__(self) -> Generator[Any, None, Any]:
        return self._answered().__await__()

    async def _answered(self) -> Any:
        return self._desk.answer(self._interrupt)
