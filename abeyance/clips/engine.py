"""CLIPS itself, for one evaluation: facts go in as values, rules as texts of our own making.

A rule is known to CLIPS by its number, so its id may be any text. Where a function cannot take a value
CLIPS prints a complaint, and goes on as if the condition did not hold; here it is an error instead.
"""

from __future__ import annotations

import importlib
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

from abeyance.clips import source
from abeyance.clips.source import NODE, Part
from abeyance.core.json import Json, look_up
from abeyance.errors import AbeyanceError

_FIRED: Final = "!fired"
"""The fact by which a rule says that it fired. No text can name it."""
_BLAMED: Final = re.compile(r"(?:in rule|of defrule) !(\d+)\b")
_FIRST: Final = 10_000
"""The highest salience that CLIPS knows."""


class ClipsError(AbeyanceError):
    """Rules cannot be evaluated; the text names the rule, what is wrong with it, and the way out."""


class ClipsMissing(ClipsError):
    """The library that evaluates CLIPS text is not installed."""


def library(id_: str) -> Any:
    """The library. Raises ClipsMissing, which names a rule that needs it."""
    try:
        return importlib.import_module("clips")
    except ModuleNotFoundError as error:
        message = f"the rule {id_!r} has CLIPS text as its condition; install abeyance[rules]"
        raise ClipsMissing(message) from error


class Engine:
    """An environment of CLIPS, for one evaluation.

    `clips` is the library; `ids` are those of the rules, by which they are numbered. First `know` the
    facts, then `learn` rules, then ask once which have `fired`. Nothing of CLIPS leaves it: a fact that
    outlived its environment would end the process.
    """

    def __init__(self, clips: Any, ids: Sequence[str]) -> None:
        self._clips = clips
        self._ids = ids
        self._environment = clips.Environment()
        self._ear = _ear(clips)()
        for router in self._environment.routers():
            # It would print what it hears, and is asked about every character that is read.
            router.deactivate()
        self._environment.add_router(self._ear)
        self._facts: list[str] = []

    def know(self, whens: Sequence[Part], changes: Sequence[Sequence[Part]]) -> None:
        """Make known every fact that the texts name: a pattern may name one that never comes."""
        slots: dict[str, set[str]] = defaultdict(lambda: {"value"})
        slots |= {name: {"value"} for when in whens for name in when.slots}
        for change in [part for parts in changes for part in parts]:
            for name, named in change.slots.items():
                slots[name] |= named
        slots[NODE] = {"id"}
        slots[_FIRED] = {"rule"}
        for name in sorted(slots):
            told = " ".join(f"(slot {slot})" for slot in sorted(slots[name]))
            self._environment.build(f"(deftemplate {name} {told})")
        self._facts = sorted(slots.keys() - {NODE, _FIRED})

    def learn(self, number: int, when: Part, changes: Sequence[Part]) -> list[str]:
        """Take in a rule; what CLIPS has against it."""
        commands = " ".join(change.clips for change in changes)
        try:
            self._environment.build(
                f"(defrule !{number} (declare (salience {_FIRST - number})) {when.clips}"
                f" => (assert ({_FIRED} (rule {number}))) {commands})"
            )
        except self._clips.CLIPSError:
            return [f"the rule {self._ids[number]!r}: CLIPS says: {_said(self._ear.take())}"]
        return []

    def fired(self, node: str, values: Mapping[str, Json], limit: int) -> tuple[str, ...]:
        """Put the facts in, and let the rules fire; their ids, as they fired.

        Raises ClipsError if CLIPS complains, or if rules still fire after `limit` firings.
        """
        self._put(NODE, id=self._clips.Symbol(node))
        for name in self._facts:
            value = look_up(values, name)
            if value is not None:
                self._put(name, value=source.value_text(value))
        count = self._environment.run(limit)
        self._listen()
        if count >= limit and (left := self._waiting()):
            message = (
                f"the rules still fire after {limit} firings, next {left}: what they assert and "
                "retract makes them fire for ever"
            )
            raise ClipsError(message)
        facts = self._environment.find_template(_FIRED).facts()
        return tuple(self._ids[fact["rule"]] for fact in facts)

    def _put(self, name: str, **slots: Any) -> None:
        self._environment.find_template(name).assert_fact(**slots)
        self._listen()

    def _waiting(self) -> str:
        numbers = {int(each.name.lstrip("!")) for each in self._environment.activations()}
        return ", ".join(repr(self._ids[number]) for number in sorted(numbers)[:5])

    def _listen(self) -> None:
        """Raise what CLIPS complained of: it would go on, and take the condition for not met."""
        said = self._ear.take()
        if not said:
            return
        blamed = {int(number) for number in _BLAMED.findall(said)}
        ids = [repr(id_) for number, id_ in enumerate(self._ids) if number in blamed]
        which = f"the rule {', '.join(ids)}" if ids else "a rule with CLIPS text"
        message = (
            f"{which} cannot be evaluated on these values; CLIPS says: {_said(said)} (values are texts; "
            "(string-to-field ?x) reads a number, and numberp tells whether it is one)"
        )
        raise ClipsError(message)


@cache
def _ear(clips: Any) -> Any:
    """What hears all that CLIPS would print: its complaints are kept, and nothing is printed."""

    class Ear(clips.Router):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__("abeyance", 50)
            self._said: list[str] = []

        def query(self, name: str) -> bool:
            return name in {"stdout", "stderr", "stdwrn"}

        def write(self, name: str, message: str) -> None:
            if name == "stderr":
                self._said.append(message)

        def take(self) -> str:
            said = "".join(self._said)
            self._said.clear()
            return said

    return Ear


def _said(text: str) -> str:
    """What CLIPS said, without its numbers, without what it had read by then, and without values."""
    told = re.split(r"\nERROR:|\n\n\[", text.strip())[0]
    return " ".join(re.sub(r"\[[A-Z]+\d+\] ", "", told).split())
