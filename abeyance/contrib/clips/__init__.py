"""The router for rules whose condition is CLIPS text. The entry point `clips` names it.

`source` looks at the texts before CLIPS does, `engine` evaluates rules with CLIPS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from abeyance.authoring.routers import Router
from abeyance.contrib.clips import engine, source
from abeyance.contrib.clips.source import TextError
from abeyance.core.json import Json
from abeyance.core.spec import Assert, Clips, Rule


class _Clips:
    def node_of(self, text: str) -> str | None:
        try:
            return source.condition(text).node
        except TextError:
            # Reported with the faults of all rules, when the graph is built.
            return None

    def fact(self, name: str, slots: Mapping[str, Json]) -> str:
        return source.fact_text(name, slots)

    def faults_of(
        self, rules: Sequence[Rule], path_fault: Callable[[str], str | None]
    ) -> list[str]:
        # One rule may name a fact that another asserts, so all texts have to be right first.
        return engine.faults_of(engine.clips_rules(rules)) or [*_unknown_facts(rules, path_fault)]

    def require(self, rule: str) -> None:
        engine.library(rule)

    def evaluate(
        self, rules: Sequence[Rule], *, node: str, values: Mapping[str, Json]
    ) -> tuple[str, ...]:
        fired = engine.evaluate(engine.clips_rules(rules, values), node=node, values=values)
        with_text = {rule.id for rule in rules if isinstance(rule.condition, Clips)}
        return tuple(id_ for id_ in fired if id_ in with_text)


ROUTER: Final[Router] = _Clips()


def _unknown_facts(rules: Sequence[Rule], path_fault: Callable[[str], str | None]) -> Iterator[str]:
    asserted = {
        name
        for rule in rules
        for action in rule.actions
        if isinstance(action, Assert)
        for name in source.assertion(action.fact).slots
    }
    for rule in rules:
        part = source.condition(rule.condition.text) if isinstance(rule.condition, Clips) else None
        for name in sorted(part.slots if part else ()):
            if name in asserted or name == source.NODE:
                continue
            if (fault := path_fault(name)) is not None:
                yield f"the rule {rule.id!r} looks at {name!r}, {fault}, and no rule asserts it"
