"""Where a reference in a JSON Schema leads, within the schema itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_LONGEST_CHAIN: Final = 8


def resolved(schema: Any, root: Any) -> Any:
    """What a schema is that may be a reference into `root`; None where it leads nowhere."""
    for _ in range(_LONGEST_CHAIN):
        match schema:
            case {"$ref": str(name)}:
                schema = root
                for part in filter(None, name.removeprefix("#").split("/")):
                    schema = schema.get(part) if isinstance(schema, Mapping) else None
            case _:
                break
    return schema
