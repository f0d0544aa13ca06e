"""docs/internals/architecture.md shows the package as it is."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from itertools import pairwise
from pathlib import Path

from pages import read

_ROOT = Path(__file__).parents[2]
_PAGE = read("internals/architecture.md")
_ROOMS = [
    re.findall(r"`(\w+)`", modules)
    for modules in re.findall(r"^\| \*\*.+? \| ([^|]+) \|$", _PAGE, re.MULTILINE)
]


def test_every_module_stands_in_one_room() -> None:
    entries = (_ROOT / "abeyance").iterdir()
    modules = {
        entry.stem
        for entry in entries
        if (entry.suffix == ".py" or (entry / "__init__.py").exists())
        and not entry.name.startswith("__")
    }
    named = Counter(module for room in _ROOMS for module in room)

    assert set(named) == modules
    assert [module for module, count in named.items() if count > 1] == []


def test_the_rooms_lie_in_the_order_of_the_layers_that_imports_are_held_to() -> None:
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = project["tool"]["importlinter"]["contracts"][0]["layers"]
    layer_of = {
        module: number
        for number, layer in enumerate(layers)
        for module in re.findall(r"\w+", layer)
    }
    extents = [
        (min(layer_of[module] for module in room), max(layer_of[module] for module in room))
        for room in _ROOMS
    ]

    assert len(extents) > 10
    for above, below in pairwise(extents):
        assert above[1] < below[0]
