"""Settings: from the environment (`ABEYANCE_*`), checked when a process starts.

How to reach Temporal is not among them: that is Temporal's own environment configuration
(`TEMPORAL_ADDRESS`, `TEMPORAL_NAMESPACE`, `TEMPORAL_TLS_*`, `TEMPORAL_API_KEY`, profiles).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import (
    BeforeValidator,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from abeyance import wire
from abeyance.core.state import Limits
from abeyance.duration import OptionalSeconds, Seconds
from abeyance.errors import SettingsError
from abeyance.keyring import Keyring

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


_STORED_VISIT_BYTES: Final = 20_000_000
"""How much a visit may be given where Temporal gets a reference to it only."""


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

    `app` names the graphs: `package.module:attribute`. `tokens_file` turns authentication on,
    and so do `jwt_issuer`, `jwt_audience` and `jwt_jwks` (where its keys are), for JSON Web Tokens whose
    claim `jwt_capabilities` (with dots, a claim within others) holds what their owners may do; `*` counts
    there only with `jwt_allow_everything`. `head_timeout` and `body_timeout` are how long a caller of the
    API may take to send the head and the body of a request, of `max_connections` at a time.
    `allowed_hosts` are further names, or `name:port`, by which the API is reached, such as that of a
    proxy before it (separated by commas). `metrics_address` is where a worker serves Prometheus metrics;
    `enable_metrics` is whether ours are recorded at all, `open_metrics` whether an API with
    authentication tells them to everybody. `shutdown_grace` is how long a worker that is told to stop
    lets its nodes go on. The rest are limits of every run; a start may lower them. Of these
    `allowed_actions` are the actions of messages (none: all), and `allowed_media_hosts` the hosts whose
    media a message, or the input of an agent, may name by a url (none: none); both are lists, separated
    by commas.

    `storage` is where large payloads and blobs are kept: a folder, or `s3://bucket/prefix`. A payload
    of `max_payload` bytes or more goes there. `storage_shared` says that a folder is one that all
    workers and APIs mount. `encryption_keys` turns encryption on (see `Keyring.parse`),
    `encryption_required` refuses what is not encrypted, and `ui_origin` are the origins of Temporal's UI,
    whose pages may have payloads decoded.

    A `preset` gives several settings other defaults. `max_active_runs` (0 is any number), what happens
    beyond it, and `session_inactive_timeout` (0 is never) are of all runs together.
    """

    model_config = SettingsConfigDict(
        env_prefix="ABEYANCE_", extra="ignore", frozen=True, hide_input_in_errors=True
    )

    preset: Preset | None = None
    app: str | None = None
    task_queue: str = Field(default=wire.TASK_QUEUE, min_length=1)
    url: str = "http://127.0.0.1:8000"
    token: str | None = Field(default=None, repr=False)
    tokens_file: Path | None = None
    jwt_issuer: str | None = Field(default=None, min_length=1)
    jwt_audience: str | None = Field(default=None, min_length=1)
    jwt_jwks: str | None = Field(default=None, min_length=1)
    jwt_capabilities: str = Field(default="capabilities", min_length=1)
    jwt_allow_everything: bool = False
    allowed_hosts: Hosts = ()
    ui_origin: Hosts = ()
    storage: str | None = Field(default=None, min_length=1)
    storage_shared: bool = False
    max_payload: int = Field(default=16_384, ge=1_024)
    encryption_keys: str | None = Field(default=None, repr=False)
    encryption_required: bool = False
    metrics_address: str | None = None
    enable_metrics: bool = True
    open_metrics: bool = False
    max_queue_size: int = Field(default=100, ge=1)
    max_message_length: int = Field(default=10_000, ge=1)
    max_metadata_size: int = Field(default=100_000, ge=2)
    allowed_actions: Words = ()
    allowed_media_hosts: Hosts = ()
    max_body_size: int = Field(default=1_000_000, ge=1_000)
    head_timeout: Seconds = Field(default=10.0, gt=0)
    body_timeout: Seconds = Field(default=30.0, gt=0)
    max_connections: int = Field(default=800, ge=1)
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

    @field_validator("storage")
    @classmethod
    def _storage(cls, given: str | None) -> str | None:
        if given is not None:
            bucket_of(given)
        return given

    @field_validator("encryption_keys")
    @classmethod
    def _encryption_keys(cls, given: str | None) -> str | None:
        if given is not None:
            Keyring.parse(given)
        return given

    @field_validator("encryption_required")
    @classmethod
    def _encryption_required(cls, given: bool, info: ValidationInfo) -> bool:  # noqa: FBT001
        # Keys that cannot be used are not in the data, and told by themselves.
        if given and info.data.get("encryption_keys", "") is None:
            raise ValueError(
                "what is not encrypted is to be refused, and there is no key to encrypt with: set "
                "ABEYANCE_ENCRYPTION_KEYS to id:key, or leave this out"
            )
        return given

    @field_validator("ui_origin")
    @classmethod
    def _ui_origin(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for origin in given:
            parts = urlsplit(origin)
            if (
                parts.scheme not in ("http", "https")
                or origin != f"{parts.scheme}://{parts.netloc}"
            ):
                raise ValueError(f"{origin!r} is no origin; write http://host:port, with no path")
        return given

    @property
    def has_authentication(self) -> bool:
        """Whether those who call the API have to say who they are."""
        given = (self.tokens_file, self.jwt_issuer, self.jwt_audience, self.jwt_jwks)
        return any(value is not None for value in given)

    @property
    def keyring(self) -> Keyring:
        """The keys of encryption; none where it is off."""
        return Keyring({}) if self.encryption_keys is None else Keyring.parse(self.encryption_keys)

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
            visit_bytes=Limits().visit_bytes if self.storage is None else _STORED_VISIT_BYTES,
        )


def load_settings() -> Settings:
    """The settings of this process. Raises SettingsError naming every variable that is wrong."""
    try:
        return Settings()
    except ValidationError as error:
        told = "; ".join(
            # As it was written: what came of it may look different. A secret is not for a log.
            f"{name}={os.environ.get(name, entry['input'])!r}: {entry['msg']}"
            if _may_be_shown(entry["loc"])
            else f"{name}: {entry['msg']}"
            for entry in error.errors(include_url=False)
            for name in ["_".join(["ABEYANCE", *map(str, entry["loc"])]).upper()]
        )
        raise SettingsError(f"settings that cannot be used: {told}") from error


def bucket_of(storage: str) -> tuple[str, str] | None:
    """The bucket and the prefix that a storage names, None for a folder.

    Raises ValueError if it is neither.
    """
    scheme, separator, rest = storage.partition("://")
    if not separator:
        return None
    bucket, _, prefix = rest.partition("/")
    if scheme != "s3" or not bucket or "//" in prefix or {"?", "#", "@"} & {*rest}:
        raise ValueError(f"{storage!r} is no storage; write a folder, or s3://bucket/prefix")
    return bucket, prefix.strip("/")


def _may_be_shown(place: tuple[int | str, ...]) -> bool:
    field = Settings.model_fields.get(str(place[0])) if place else None
    return field is None or field.repr
