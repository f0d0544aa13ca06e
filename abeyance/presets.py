"""Settings that go together, for three kinds of deployment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

Preset: TypeAlias = Literal["multi-tenant", "high-throughput", "constrained"]

PRESETS: Final[Mapping[str, Mapping[str, Any]]] = {
    # Many who share it: less for each, and what lies idle goes.
    "multi-tenant": {
        "max_queue_size": 50,
        "max_active_runs": 1_000,
        "session_inactive_timeout": 1_800.0,
        "max_message_length": 5_000,
        "max_metadata_size": 50_000,
    },
    # One who sends much.
    "high-throughput": {
        "max_queue_size": 500,
        "max_active_runs": 0,
        "session_inactive_timeout": 7_200.0,
        "max_message_length": 50_000,
        "max_metadata_size": 500_000,
    },
    # A small machine.
    "constrained": {
        "max_queue_size": 20,
        "max_active_runs": 100,
        "session_inactive_timeout": 600.0,
        "max_message_length": 1_000,
        "max_metadata_size": 10_000,
    },
}
"""What each preset sets, by the names of the settings."""
