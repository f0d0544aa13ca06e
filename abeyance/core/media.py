"""Which urls of media may be handed to a model: https, on hosts that the run allows, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Final

# Nothing but a host and perhaps a port: whoever reads the url later must not read another host.
_HTTPS: Final = re.compile(r"https://(?P<host>[A-Za-z0-9.-]+(:[0-9]{1,5})?)([/?#][!-~]*)?")


def is_allowed(url: str, hosts: Container[str]) -> bool:
    """Whether a url is an https address on one of these hosts."""
    found = _HTTPS.fullmatch(url)
    return found is not None and found["host"].lower().removesuffix(":443") in hosts
