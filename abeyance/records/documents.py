"""Documents: the JSON that a row holds beside its columns, sealed for its run if there are keys."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any, Final

from pydantic_core import from_json
from sqlalchemy import Connection

from abeyance import views
from abeyance.core.text import HALVES
from abeyance.keyring import Keyring

_SEALED: Final = "sealed:"
"""No JSON begins with this."""


class Documents:
    """Writes and reads documents with the keys of the deployment."""

    def __init__(self, keys: Keyring) -> None:
        self._keys = keys

    @property
    def are_sealed(self) -> bool:
        """Whether a reader needs a key for the documents that are written."""
        return bool(self._keys)

    def write(self, value: Any, run_id: str) -> str:
        """Return a value as the text that a row holds."""
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        text = HALVES.sub(lambda half: f"\\u{ord(half[0]):04x}", text)
        if not self._keys:
            return text
        sealed = self._keys.seal(text.encode(), run_id=run_id)
        return _SEALED + base64.b64encode(sealed).decode()

    def write_view(self, view: views.RunView | views.InterruptView) -> str:
        """Return a view as the text that a row holds."""
        # Most of the sixty fields of a question have their defaults, which need no space.
        return self.write(view.model_dump(mode="json", exclude_defaults=True), view.run_id)

    def read(self, text: str) -> Any:
        """Return the JSON of a row. Raises WrongKey if no key of this process opens it."""
        if text.startswith(_SEALED):
            opened = self._keys.open(base64.b64decode(text.removeprefix(_SEALED)))
            text = opened.decode()
        try:
            return from_json(text)
        except ValueError:
            # `from_json` is quick, but refuses halves of characters.
            return json.loads(text)


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction in the records of one deployment, with its documents, and the deployment's row."""

    connection: Connection
    documents: Documents
    deployment: int
