"""Schemas that are short to write, but much work to walk through."""

from __future__ import annotations

from typing import Any


def doubling(levels: int, leaf: Any = True, word: str = "anyOf") -> dict[str, Any]:
    """Return definitions from `a0` on, each of which refers to the next one twice."""
    named = {
        f"a{level}": {word: [{"$ref": f"#/$defs/a{level + 1}"}] * 2} for level in range(levels)
    }
    return {"$defs": {**named, f"a{levels}": leaf}}


def doubled(levels: int, leaf: Any = True, word: str = "anyOf") -> dict[str, Any]:
    """Return a schema that refers to the first definition of `doubling`."""
    return {"$ref": "#/$defs/a0", **doubling(levels, leaf, word)}


def each_other(kinds: int) -> dict[str, Any]:
    """Return a schema of so many kinds of objects; the member `of` of each may be of any kind."""
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
