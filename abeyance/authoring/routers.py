"""Routers of conditions that are a text, such as CLIPS: they check the text, and find the rules that
fire.

A router does both. The entry point `clips` of the group `abeyance.routers` names ours, an object with the
methods of `Router`; `abeyance.contrib.clips` has it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Final, Protocol

from abeyance import extensions
from abeyance.core.json import Json
from abeyance.core.spec import Rule
from abeyance.errors import AbeyanceError, SettingsError

AT_NODE: Final = re.compile(r"\(\s*node-id\s*\(\s*id\s+(?P<node>[\w.+\-]+)\s*\)\s*\)")
"""The condition that holds after visits of one node only. It needs no router."""
_OURS: Final = "clips"


class RouterError(AbeyanceError):
    """Rules cannot be evaluated; the message names the rule, the problem and the fix."""


class RouterMissing(RouterError):
    """The router of conditions that are a text is not installed."""


class Router(Protocol):
    """Reads conditions that are a text, and the facts that their rules change."""

    def node_of(self, text: str) -> str | None:
        """Return the one node after which a condition can hold; None if it names none, or is faulty."""

    def fact(self, name: str, slots: Mapping[str, Json]) -> str:
        """Return the text of a fact. Null values are left out."""

    def faults_of(
        self, rules: Sequence[Rule], path_fault: Callable[[str], str | None]
    ) -> list[str]:
        """Return every fault in the texts of a graph's rules. `path_fault` returns None, or the end of a
        sentence that says why no value has the path.
        """

    def require(self, rule: str) -> None:
        """Raise RouterMissing, which names the rule, if the router's library is not installed."""

    def evaluate(
        self, rules: Sequence[Rule], *, node: str, values: Mapping[str, Json]
    ) -> tuple[str, ...]:
        """Return the ids of the rules with a text that fire after a visit of `node`, in order.

        Raise RouterError. For activities only: this may take long.
        """


@cache
def router() -> Router:
    """Return the installed router. Raise RouterMissing."""
    try:
        found: Router = extensions.load(extensions.ROUTERS, _OURS)
    except SettingsError as error:
        raise RouterMissing(str(error)) from error
    return found
