"""International bank account numbers: how they are compared, and their check digits (ISO 13616)."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

_SHAPE = re.compile(r"[A-Z]{2}[0-9]{2}[A-Z0-9]{11,30}")


def normalise(text: str) -> str:
    """Return the number without blanks and in capitals, as it is compared and sent to a bank."""
    return "".join(text.split()).upper()


def is_valid(number: str) -> bool:
    """Say whether a normalised number has the shape of an IBAN and the right check digits."""
    if not _SHAPE.fullmatch(number):
        return False
    rearranged = number[4:] + number[:4]
    return int("".join(str(int(character, 36)) for character in rearranged)) % 97 == 1


def _require_valid(text: str) -> str:
    number = normalise(text)
    if not is_valid(number):
        raise ValueError(f"{text!r} is not an IBAN: its length or its check digits are wrong")
    return number


Iban = Annotated[str, AfterValidator(_require_valid)]
"""A field that holds a valid IBAN, normalised."""
