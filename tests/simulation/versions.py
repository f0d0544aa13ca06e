"""Two versions of a random graph: in the second, every node has another name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from core_renamed import renamed

from abeyance.core.address import Address
from abeyance.core.spec import GraphSpec
from tests.simulation.chance import Chance
from tests.simulation.graphs import SUFFIX, RandomGraph

_WAYS: Final = ["right", "right", "right", "none", "wrong"]


class Versions:
    """The versions of a graph; `today` is the deployed one. At random, the second version still has the
    first version's code for retired nodes.
    """

    def __init__(
        self, spec: GraphSpec, chance: Chance, made: Callable[[GraphSpec, str], RandomGraph]
    ) -> None:
        later, names = renamed(spec, SUFFIX)
        self._first, self._second = made(spec, ""), made(later, SUFFIX)
        self._names = names
        self._has_retired = chance.choice([True, False])
        if self._has_retired:
            self._second.retire(self._first)
        self.today = self._first

    def deploy(self) -> None:
        """Deploy the other version: the second, or the first again."""
        self.today = self._first if self.today is self._second else self._second

    def lacks(self, spec: GraphSpec) -> bool:
        """Return whether today's workers lack code of a run's graph."""
        is_second = is_renamed(spec)
        if self.today is self._first:
            return is_second
        return not is_second and not self._has_retired

    def renames(self, spec: GraphSpec) -> Mapping[str, str]:
        """Return today's names of the nodes in a run's graph that have another name now."""
        if is_renamed(spec) == (self.today is self._second):
            return {}
        if self.today is self._second:
            return self._names
        return {new: old for old, new in self._names.items()}

    def drawn_renames(self, chance: Chance) -> Callable[[GraphSpec], Mapping[str, str]]:
        """Draw how a person maps the names: right, wrong or not at all."""
        match chance.choice(_WAYS):
            case "none":
                return lambda spec: {}
            case "wrong":
                return lambda spec: {**self.renames(spec), "nowhere": "elsewhere"}
            case _:
                return self.renames


def is_renamed(spec: GraphSpec) -> bool:
    """Return whether a graph is the second version."""
    return next(iter(spec.nodes)).endswith(SUFFIX)


def moved(address: str, spec: GraphSpec) -> str:
    """Return an address with the node names of its run's graph."""
    suffix = SUFFIX if is_renamed(spec) else ""
    segments = (
        replace(each, id=each.id.removesuffix(SUFFIX) + suffix) if each.type == "node" else each
        for each in Address.parse(address).segments
    )
    return str(Address(tuple(segments)))
