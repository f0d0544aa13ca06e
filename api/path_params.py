"""Ids in paths, and the key by which a caller repeats a call."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import Depends, Header, Path, Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel

from abeyance import wire
from abeyance.api.auth import Who
from abeyance.api.problems import invalid
from abeyance.errors import Code, Refusal

KEY_HEADER: Final = "Idempotency-Key"

_MADE_BY_KEY: Final = re.compile("run-[0-9a-f]{32}")
_KEY: Final = re.compile(r"[!-~]{1,200}")
_INTERRUPT_ID: Final = re.compile(r"(?P<run_id>[A-Za-z0-9_-]{1,256})\.[0-9a-f]{16}")
_SHOWN_CHARS: Final = 100


async def _run_id(
    run_id: Annotated[str, Path(description="The id of a run.", examples=["refund-4711"])],
) -> str:
    # No run can have such an id, so nobody has to be asked.
    if re.fullmatch(wire.RUN_ID_RULE, run_id) is None:
        raise Refusal(
            Code.UNKNOWN_RUN,
            f"There is no run {run_id[:_SHOWN_CHARS]!r}: this is not a valid run id.",
            run_id=run_id[:_SHOWN_CHARS],
        )
    return run_id


RunId = Annotated[str, Depends(_run_id)]
"""The run that a path names. What cannot be the id of a run is an unknown run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedInterrupt:
    """The interrupt that a path names, and the run that it belongs to, which its id tells."""

    id: str
    run_id: str


async def _interrupt_id(
    interrupt_id: Annotated[
        str,
        Path(description="The id of an interrupt.", examples=["refund-4711.b276f6238dab3ba5"]),
    ],
) -> NamedInterrupt:
    found = _INTERRUPT_ID.fullmatch(interrupt_id)
    if found is None:
        raise unknown_interrupt(interrupt_id)
    return NamedInterrupt(id=interrupt_id, run_id=found["run_id"])


InterruptId = Annotated[NamedInterrupt, Depends(_interrupt_id)]
"""The interrupt that a path names. What cannot be the id of one is an unknown interrupt."""


def unknown_interrupt(id_: str) -> Refusal:
    """The refusal of an id that no interrupt has."""
    shown = id_[:_SHOWN_CHARS]
    return Refusal(
        Code.UNKNOWN_INTERRUPT,
        f"There is no interrupt {shown!r}; list the interrupts of its run to see their ids.",
        interrupt_id=shown,
    )


async def _key(
    key: Annotated[
        str | None,
        Header(
            alias=KEY_HEADER,
            description="Makes retries safe: a second request with the same key has no further effect. 1 "
            "to 200 visible ASCII characters.",
            examples=["7f3c1b52"],
            json_schema_extra={"pattern": f"^{_KEY.pattern}$"},
        ),
    ] = None,
) -> str | None:
    if key is not None and _KEY.fullmatch(key) is None:
        message = f"{key[:_SHOWN_CHARS]!r} is not a key: use 1 to 200 visible ASCII characters"
        raise invalid([{"pointer": f"/{KEY_HEADER.lower()}", "message": message, "in": "header"}])
    return key


Key = Annotated[str | None, Depends(_key)]
"""The caller's own name for this call, if there is one."""
TAKES_KEY: Final = Depends(_key)
"""The same for a call that may be repeated anyway."""


def chosen_run_id(run_id: str | None) -> str | None:
    """The id that a caller gives to a run, if any. Raises `invalid_run_id` for what a key may make."""
    if run_id is not None and _MADE_BY_KEY.fullmatch(run_id):
        raise Refusal(
            Code.INVALID_RUN_ID,
            f"The run id {run_id!r} is reserved: ids of the form run- and 32 hexadecimal digits are made "
            f"from an {KEY_HEADER}. Choose an id of another form, or send a key and no id.",
            rule=f"not {_MADE_BY_KEY.pattern}",
        )
    return run_id


def run_id_of(task_queue: str, subject: str, key: str) -> str:
    """The id of the run that a principal starts under a key; nobody else's key makes the same, nor the
    same key in another deployment of the namespace.
    """
    return f"run-{hash_of(task_queue, subject, key)}"


def hash_of(*parts: str) -> str:
    """What stands for a principal's key where it is kept."""
    # As a list, so that no subject can end where another's key begins.
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


async def _refuse_unknown(request: Request, _who: Who) -> None:
    # Who is calling is settled first: to others nothing is said of the call.
    route = request.scope["route"]
    known = _of(route.dependant) if isinstance(route, APIRoute) else set[str]()
    if unknown := [name for name in request.query_params if name not in known]:
        message = f"is not a parameter of this endpoint: use {', '.join(sorted(known)) or 'none'}"
        raise invalid(
            [
                {"pointer": f"/{name[:100]}", "message": message, "in": "query"}
                for name in unknown[:20]
            ]
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
