"""Settings: from the environment (`ABEYANCE_*`), checked when a process starts.

How to reach Temporal is not among them: that is Temporal's own environment configuration
(`TEMPORAL_ADDRESS`, `TEMPORAL_NAMESPACE`, `TEMPORAL_TLS_*`, `TEMPORAL_API_KEY`, profiles).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from abeyance import wire
from abeyance.core.state import Limits
from abeyance.duration import OptionalSeconds, Seconds
from abeyance.errors import SettingsError
from abeyance.presets import PRESETS, Preset


def _listed(given: Any) -> Any:
    if not isinstance(given, str):
        return given
    return tuple(name for part in given.split(",") if (name := part.strip().lower()))


def _words(given: Any) -> Any:
    if not isinstance(given, str):
        return given
    return tuple(word for part in given.split(",") if (word := part.strip()))


Hosts: TypeAlias = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_listed)]
Words: TypeAlias = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=100)], ...],
    NoDecode,
    BeforeValidator(_words),
]


class Settings(BaseSettings):
    """What a worker, an API or a command may be told from outside.

    `app` names the graphs: `package.module:attribute`. `tokens_file` turns authentication on.
    `allowed_hosts` are further names, or `name:port`, by which the API is reached, such as that of a
    proxy before it (separated by commas). `metrics_address` is where a worker serves Prometheus metrics;
    `enable_metrics` is whether ours are recorded at all, `open_metrics` whether an API with
    authentication tells them to everybody. `shutdown_grace` is how long a worker that is told to stop
    lets its nodes go on. The rest are limits of every run; a start may lower them. Of these
    `allowed_actions` are the actions of messages (none: all), and `allowed_media_hosts` the hosts whose
    media a message may name by a url (none: none); both are lists, separated by commas.

    A `preset` gives several settings other defaults. `max_active_runs` (0 is any number), what happens
    beyond it, and `session_inactive_timeout` (0 is never) are of all runs together.
    """

    model_config = SettingsConfigDict(env_prefix="ABEYANCE_", extra="ignore", frozen=True)

    preset: Preset | None = None
    app: str | None = None
    task_queue: str = Field(default=wire.TASK_QUEUE, min_length=1)
    url: str = "http://127.0.0.1:8000"
    token: str | None = Field(default=None, repr=False)
    tokens_file: Path | None = None
    allowed_hosts: Hosts = ()
    metrics_address: str | None = None
    enable_metrics: bool = True
    open_metrics: bool = False
    max_queue_size: int = Field(default=100, ge=1)
    max_message_length: int = Field(default=10_000, ge=1)
    max_metadata_size: int = Field(default=100_000, ge=2)
    allowed_actions: Words = ()
    allowed_media_hosts: Hosts = ()
    max_body_size: int = Field(default=1_000_000, ge=1_000)
    max_visits: int = Field(default=1_000, ge=1)
    max_guard_turns: int = Field(default=10, ge=0)
    max_parallel_visits: int = Field(default=50, ge=1, le=1_000)
    pause_timeout: OptionalSeconds = Field(default=None, gt=0)
    grace: Seconds = Field(default=30.0, ge=0)
    default_timeout: Seconds = Field(default=300.0, gt=0)
    shutdown_grace: Seconds = Field(default=5.0, ge=0)
    continue_as_new_after: int = Field(default=1_500, ge=3)
    max_active_runs: int = Field(default=0, ge=0)
    max_active_runs_policy: Literal["evict-lru", "reject"] = "evict-lru"
    session_inactive_timeout: Seconds = Field(default=0.0, ge=0)

    @model_validator(mode="before")
    @classmethod
    def _preset(cls, given: Any) -> Any:
        # What is said itself goes before the preset; an unknown one is refused by its own field.
        if not isinstance(given, dict):
            return given
        return {**PRESETS.get(str(given.get("preset")), {}), **given}

    def limits(self) -> Limits:
        """The limits that a run gets unless its start lowers them."""
        return Limits(
            max_queue_size=self.max_queue_size,
            max_message_length=self.max_message_length,
            max_metadata_size=self.max_metadata_size,
            allowed_actions=self.allowed_actions,
            allowed_media_hosts=self.allowed_media_hosts,
            max_visits=self.max_visits,
            max_guard_turns=self.max_guard_turns,
            max_parallel_visits=self.max_parallel_visits,
            pause_timeout=self.pause_timeout,
            grace=self.grace,
            continue_as_new_after=self.continue_as_new_after,
        )


def load_settings() -> Settings:
    """The settings of this process. Raises SettingsError naming every variable that is wrong."""
    try:
        return Settings()
    except ValidationError as error:
        told = "; ".join(
            # As it was written: what came of it may look different.
            f"{name}={os.environ.get(name, entry['input'])!r}: {entry['msg']}"
            for entry in error.errors(include_url=False)
            for name in ["_".join(["ABEYANCE", *map(str, entry["loc"])]).upper()]
        )
        raise SettingsError(f"settings that cannot be used: {told}") from error
