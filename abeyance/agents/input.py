"""What an agent is told first: a text, or the parts that a message may have, such as a picture.

Any value that is no text and no list of such parts is told as JSON.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from pydantic import TypeAdapter, ValidationError

from abeyance.agents.injected import media_content
from abeyance.core import messages
from abeyance.core.canonical import Json, canonical
from abeyance.errors import AgentFailed, FailureCode
from abeyance.mail import MediaPart, Part, TextPart

if TYPE_CHECKING:
    from pydantic_ai.messages import UserContent

Told: TypeAlias = "str | Sequence[UserContent]"

_KINDS: Final = frozenset({"text", "media"})
_PARTS: Final[TypeAdapter[list[Part]]] = TypeAdapter(list[Part])


def told(value: Json, hosts: Container[str]) -> Told:
    """What a model reads of an agent's input. Media that are named by a url are on one of the hosts.

    Raises AgentFailed, which says what is wrong with which part.
    """
    if isinstance(value, str):
        return value
    if not _are_parts(value):
        return canonical(value)
    try:
        parts = _PARTS.validate_python(value)
    except ValidationError as error:
        faults = "; ".join(
            f"{'.'.join(map(str, each['loc']))}: {each['msg']}"
            for each in error.errors(include_input=False, include_url=False)
        )
        raise _refused(f"has parts that cannot be read ({faults})") from error
    return [_content(part, hosts) for part in parts]


def _are_parts(value: Json) -> bool:
    return (
        isinstance(value, list | tuple)
        and bool(value)
        and all(isinstance(each, Mapping) and each.get("type") in _KINDS for each in value)
    )


def _content(part: TextPart | MediaPart, hosts: Container[str]) -> UserContent:
    if isinstance(part, TextPart):
        return part.text
    if part.url is not None and not messages.is_allowed_media(part.url, hosts):
        raise _refused(
            f"names the url {part.url[:100]!r}, which is no https address on a host of "
            "allowed_media_hosts: put the media itself into `data`, or have the host allowed"
        )
    return media_content(part.model_dump())


def _refused(text: str) -> AgentFailed:
    return AgentFailed(FailureCode.NODE_FAILED, f"the agent's input {text}")
