"""The part that all protocols of user interfaces share.

`posted` is the input of a user interface, and `threads` the conversation that it belongs to. `segments`
turns the events of a run into `parts`, which each protocol writes in its own form.
"""

from __future__ import annotations

from typing import Final

LARGEST_BODY: Final = 8_000_000
"""In bytes. These protocols repeat the whole conversation in each request."""
