"""A value of Python as JSON: what nodes, tools, steps and callers hand over may be of any type."""

from __future__ import annotations

import json
from typing import Any, Final

from pydantic import ConfigDict, TypeAdapter

from abeyance.core.canonical import Json, why_not_json

# Otherwise pydantic writes NaN as null, and nobody would hear of it.
_ANY: Final[TypeAdapter[Any]] = TypeAdapter(Any, config=ConfigDict(ser_json_inf_nan="constants"))


def as_json(value: Any) -> Json:
    """The JSON that pydantic makes of a value. Raises ValueError, which says why there is none."""
    found: Json = json.loads(_ANY.dump_json(value))
    if (fault := why_not_json(found)) is not None:
        raise ValueError(fault)
    return found
