"""Which parameters a query may have: those that the call describes, in every call alike.

One that nobody reads would be left out without a word: a filter that filters nothing, a wait that is
none.
"""

from __future__ import annotations

from typing import Final

from fastapi import Depends, Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel

from abeyance.api.auth import Who
from abeyance.api.problems import invalid


async def _refuse_unknown(request: Request, _who: Who) -> None:
    # Who is calling is settled first: to others nothing is said of the call.
    route = request.scope["route"]
    known = _of(route.dependant) if isinstance(route, APIRoute) else set[str]()
    if unknown := [name for name in request.query_params if name not in known]:
        told = f"there is no such parameter; this call has {', '.join(sorted(known)) or 'none'}"
        raise invalid(
            [{"pointer": f"/{name[:100]}", "message": told, "in": "query"} for name in unknown[:20]]
        )


DESCRIBED: Final = Depends(_refuse_unknown)
"""As the dependency of a call: it has no parameters but those that it describes."""


def _of(dependant: Dependant) -> set[str]:
    found: set[str] = set()
    for parameter in dependant.query_params:
        model = parameter.field_info.annotation
        if isinstance(model, type) and issubclass(model, BaseModel):
            found |= {field.alias or name for name, field in model.model_fields.items()}
        else:
            found.add(parameter.alias)
    return found.union(*map(_of, dependant.dependencies))
