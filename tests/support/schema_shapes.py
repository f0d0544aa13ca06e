"""Schemas that are small to write and large to look at."""

from __future__ import annotations

from typing import Any


def doubling(levels: int, leaf: Any = True, word: str = "anyOf") -> dict[str, Any]:
    """Definitions from `a0` on, each of which refers to the next one twice."""
    named = {
        f"a{level}": {word: [{"$ref": f"#/$defs/a{level + 1}"}] * 2} for level in range(levels)
    }
    return {"$defs": {**named, f"a{levels}": leaf}}


def doubled(levels: int, leaf: Any = True, word: str = "anyOf") -> dict[str, Any]:
    """A schema that refers to the first of these definitions."""
    return {"$ref": "#/$defs/a0", **doubling(levels, leaf, word)}


def each_other(kinds: int) -> dict[str, Any]:
    """Objects of so many kinds, in each of which the member `of` may be of each kind."""
    named = [f"k{number}" for number in range(kinds)]
    inner = {"anyOf": [{"$ref": f"#/$defs/{name}"} for name in named]}
    of = {
        name: {
            "type": "object",
            "properties": {"of": inner},
        }
        for name in named
    }
    return {"$ref": "#/$defs/k0", "$defs": of}
