"""What the protocols of user interfaces share, whatever form each gives it.

`posted` is what a user interface sends, and `threads` the conversation that it belongs to. `segments`
turns what then happens in a run into `parts`, which each protocol writes in its own form.
"""

from __future__ import annotations

from typing import Final

LARGEST_BODY: Final = 8_000_000
"""In bytes. These protocols repeat the whole conversation in each request."""
