"""Files of a run: pictures and documents that a question shows, stored as blobs of the run.

A reference to a file is JSON, `{"$file": <address>, "name": ..., "type": ...}`, in a payload, a reason or
a value. The address contains the hash of the stored bytes, so the digest of a question covers the bytes.
The blob begins with a fixed line, so that no other blob of a run can be read as a file.
"""

from __future__ import annotations

import json
import mimetypes
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from abeyance.core.json import Json
from abeyance.core.text import truncate, visible
from abeyance.errors import Code, Fatal, Refusal
from abeyance.storage.blobs import BlobMissing, Blobs, folder_of
from abeyance.util import checked_mapping, checked_text

MAX_BYTES: Final = 10 * 2**20
"""The most bytes of a file."""
UNKNOWN_TYPE: Final = "application/octet-stream"
_KEY: Final = "$file"
_FIRST_LINE: Final = b"abeyance file 1\n"
_ID: Final = re.compile("[0-9a-f]{64}", re.ASCII)
_TYPE: Final = re.compile(r"[a-z0-9.+-]{1,60}/[a-z0-9.+-]{1,60}", re.ASCII)
_NAME_CHARS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFile:
    """A file of a run. `type` is its media type."""

    name: str
    type: str
    data: bytes


async def store(
    blobs: Blobs, run_id: str, name: str, data: bytes, type_: str | None
) -> dict[str, str]:
    """Store a file of a run, and return the reference to it. The same file again stores nothing new.

    Without a type, the ending of the name decides it. Raises Fatal for an invalid name or type, or more
    than `MAX_BYTES`, and Unavailable.
    """
    if not 0 < len(name) <= _NAME_CHARS or visible(name) != name or "/" in name or "\n" in name:
        raise Fatal(
            f"{truncate(repr(name), _NAME_CHARS)} is not a name of a file: give 1 to {_NAME_CHARS} "
            "visible characters without a slash"
        )
    type_ = type_ or mimetypes.guess_type(name)[0] or UNKNOWN_TYPE
    if not _TYPE.fullmatch(type_):
        raise Fatal(
            f"the type {type_!r} of the file {name!r} is not a media type, such as image/png"
        )
    if len(data) > MAX_BYTES:
        raise Fatal(
            f"the file {name!r} has {len(data)} bytes, and at most {MAX_BYTES} can be stored: store it "
            "elsewhere, and show its address"
        )
    head = json.dumps({"name": name, "type": type_}).encode()
    ref = await blobs.put(run_id, _FIRST_LINE + head + b"\n" + data)
    address = f"/runs/{run_id}/files/{ref.rpartition('/')[2]}"
    return {_KEY: address, "name": name, "type": type_}


async def load(blobs: Blobs, run_id: str, file: Mapping[str, str] | str) -> RunFile:
    """Return a file of a run, by the reference to it or by its id, which is the end of the address.

    Raises the refusal `not_found`, and Unavailable.
    """
    id_ = checked_id(run_id, file)
    try:
        data = await blobs.get(f"{folder_of(run_id)}/{id_}")
    except BlobMissing:
        data = b""
    if not data.startswith(_FIRST_LINE):
        raise _unknown(run_id, id_)
    head, _, content = data.removeprefix(_FIRST_LINE).partition(b"\n")
    return RunFile(**json.loads(head), data=content)


def checked_id(run_id: str, file: Mapping[str, str] | str) -> str:
    """Return the id of a file, given as a reference, an address or an id. Raises `not_found`."""
    id_ = id_of(file)
    if _ID.fullmatch(id_) is None:
        raise _unknown(run_id, id_)
    return id_


def id_of(file: Mapping[str, str] | str) -> str:
    """Return the id of a file, given as a reference, an address or an id."""
    address = file if isinstance(file, str) else checked_mapping(file, "/file").get(_KEY, "")
    return checked_text(address, f"/file/{_KEY}").rpartition("/")[2]


def _unknown(run_id: str, id_: str) -> Refusal:
    return Refusal(
        Code.NOT_FOUND,
        f"The run {run_id!r} has no file {truncate(id_, _NAME_CHARS)!r}: take the address from a "
        "question of this run.",
        run_id=run_id,
    )


def carried(value: Json) -> Iterator[Mapping[str, str]]:
    """Yield the references to files in a value."""
    match value:
        case {"$file": str(), **rest} if all(isinstance(each, str) for each in rest.values()):
            yield value
        case Mapping():
            for each in value.values():
                yield from carried(each)
        case list():
            for each in value:
                yield from carried(each)
        case _:
            return
