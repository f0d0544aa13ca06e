"""The chart in deploy/, rendered by Helm's own library, and the plain manifests made from it.

`make manifests` runs this file to write the plain manifests.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import yaml

Values: TypeAlias = dict[str, Any]
Manifest: TypeAlias = dict[str, Any]

CHART: Final = Path(__file__).parents[2] / "deploy" / "chart"
PLAIN: Final = CHART.parent / "kubernetes"
RELEASE: Final = "abeyance"
"""The name of the release, and of its namespace."""
_HEADER: Final = (
    "# Made by `make manifests` of the chart and values.yaml (docs/how-to/kubernetes.md).\n"
)
_FIRST: Final = "setup.yaml"


def example() -> Values:
    """Return the values of the plain manifests."""
    found: Values = yaml.safe_load((PLAIN / "values.yaml").read_text(encoding="utf-8"))
    return found


def rendered(values: Mapping[str, Any], *, release: str = RELEASE) -> dict[str, str]:
    """Return Helm's output for each template. Raises Helm's errors."""
    import helm_python

    with helm_python.Chart.load(CHART) as chart:
        made: dict[str, str] = chart.render(dict(values), name=release, namespace=RELEASE)
    return {name.removeprefix("abeyance/templates/"): text for name, text in made.items()}


def manifests(text: str) -> dict[str, Manifest]:
    """Return the objects in a YAML text by `Kind/name`."""
    found = [each for each in yaml.safe_load_all(text) if each]
    return {f"{each['kind']}/{each['metadata']['name']}": each for each in found}


def plain() -> dict[str, str]:
    """Return the plain manifests by file: first the setup that must succeed, then the rest."""
    made = {name: text for name, text in sorted(rendered(example()).items()) if text.strip()}
    rest = [name for name in made if name.endswith(".yaml") and "/" not in name and name != _FIRST]
    return {_FIRST: _joined(made[_FIRST]), "abeyance.yaml": _joined(*(made[name] for name in rest))}


def _joined(*texts: str) -> str:
    return _HEADER + "".join(f"---\n{text.strip()}\n" for text in texts)


def main() -> None:
    """Write the plain manifests."""
    for name, text in plain().items():
        (PLAIN / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
