"""Examples of who signs in."""

from __future__ import annotations

from typing import Final

ME: Final = {
    "subject": "ada",
    "capabilities": ["runs:read", "runs:respond", "refunds:approve"],
    "groups": ["finance"],
    "reads": {"team": ["finance"]},
    "authenticated_by": "token",
    "expires_at": "2026-03-02T17:00:00Z",
}

SIGN_IN: Final = {"token": "5d1c0f7e9b7f4a0f8f0f6a0c9f3b7d2e"}

SIGNED_IN: Final = {**ME, "authenticated_by": "session"}

SIGNED_OUT: Final = {"signed_out": True}
