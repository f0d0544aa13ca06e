"""Settings from the environment (`ABEYANCE_*`), validated when a process starts.

Temporal's own environment configuration (`TEMPORAL_ADDRESS`, `TEMPORAL_NAMESPACE`, `TEMPORAL_TLS_*`,
`TEMPORAL_API_KEY`, profiles) sets the connection to Temporal.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple, TypeAlias
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

from abeyance import extensions
from abeyance.core.terms import is_zone
from abeyance.core.text import LONGEST_ID
from abeyance.duration import OptionalSeconds, Seconds
from abeyance.errors import SettingsError
from abeyance.keyring import Keyring, SigningKey
from abeyance.util import TASK_QUEUE

if TYPE_CHECKING:
    from abeyance.core.state import Limits

_PREFIX: Final = "ABEYANCE_"
_WARNED: Final[set[str]] = set()
_OPTION: Final = re.compile(r"\?\w+=")
_ORIGIN: Final = re.compile(r"https?://[^\s/?#@]*[^\s/?#@:]")
_logger = logging.getLogger("abeyance.settings")

Preset: TypeAlias = Literal["multi-tenant", "high-throughput", "constrained"]

PRESETS: Final[Mapping[str, Mapping[str, Any]]] = {
    # Many tenants: lower limits for each, and inactive runs are evicted.
    "multi-tenant": {
        "max_queue_size": 50,
        "max_active_runs": 1_000,
        "session_inactive_timeout": 1_800.0,
        "max_message_length": 5_000,
        "max_metadata_size": 50_000,
    },
    # One tenant with many messages.
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
"""The defaults of each preset, by setting."""


_STORED_VISIT_BYTES: Final = 20_000_000
"""Maximum input of a visit if large payloads are in storage."""


def _listed(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return tuple(name for part in value.split(",") if (name := part.strip().lower()))


def _words(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return tuple(word for part in value.split(",") if (word := part.strip()))


Hosts: TypeAlias = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_listed)]
Words: TypeAlias = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=100)], ...],
    NoDecode,
    BeforeValidator(_words),
]


class Settings(BaseSettings):
    """Settings of a worker, an API or a command. Lists are separated by commas.

    Service: `app` names the graphs, as `package.module:attribute`. `metrics_address` is the address of a
    worker's Prometheus metrics; `enable_metrics` turns our metrics off, and `open_metrics` serves those
    of an API without authentication. A stopping worker gives its nodes `shutdown_grace`. `build_id` names
    the build of a worker, and `versioning` makes Temporal keep runs to the build that they started on
    (`pinned`), or move them to the current one (`auto-upgrade`). `timezone` is the zone of calendars
    without one.

    HTTP: `tokens_file` turns authentication on. So do `jwt_issuer`, `jwt_audience` and `jwt_jwks` (the
    URL of the keys), for JSON Web Tokens. The claim `jwt_capabilities` (a path with dots) lists the
    capabilities of the caller, `jwt_subject` names the caller, and `jwt_groups` the groups of the caller.
    `allowed_hosts` are further hosts (`name` or `name:port`) of the API, such as a proxy. Pages of
    `allowed_origins` may talk to the graphs with a token. `mcp` offers all graphs as tools of MCP, not
    only those that are built for it.

    Sign-in: people sign in at `oidc_issuer`, an OpenID provider that knows this service as
    `oidc_client_id`. `signin_keys` (as `encryption_keys`) seal their sessions. `public_url` is where
    browsers reach the service.

    Records: `database_url` is the database that people read, `sqlite:///path` or
    `postgresql://user:password@host/name`.

    Storage: `storage` holds blobs and payloads of `max_payload` bytes or more. It is a folder or
    `s3://bucket/prefix`; `storage_shared` declares that all workers and APIs mount the folder.
    `encryption_keys` turns encryption on (see `Keyring.parse`), `encryption_required` refuses unencrypted
    payloads, and pages of `ui_origin`, the origins of Temporal's UI, may decode payloads.

    People: `notifications` is the file of rules by which people are notified. `abeyance slack` posts with
    `slack_bot_token`, and hears what people press over a connection that it opens with `slack_app_token`,
    or by requests that Slack signs with `slack_signing_secret`. `slack_api` is the address of Slack's
    API.

    Audit: `audit_key` signs audits: a private key of ed25519, 32 bytes in base64. Runs that ended more
    than `keep` seconds ago are deleted; without it they are kept forever.

    Limits: `max_active_runs` (0: unlimited), its policy, and `session_inactive_timeout` (0: never) apply
    to all runs together; the others apply to each run, and a start may lower them. `allowed_actions` are
    the actions of messages (empty: all), and `allowed_media_hosts` the hosts of media urls in messages
    and agent inputs (empty: none). A `preset` changes the defaults of several limits.
    """

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX, extra="ignore", frozen=True, hide_input_in_errors=True
    )

    preset: Preset | None = None
    app: str | None = None
    task_queue: str = Field(default=TASK_QUEUE, min_length=1)
    timezone: str = "UTC"
    url: str = "http://127.0.0.1:8000"
    token: str | None = Field(default=None, repr=False)
    tokens_file: Path | None = None
    jwt_issuer: str | None = Field(default=None, min_length=1)
    jwt_audience: str | None = Field(default=None, min_length=1)
    jwt_jwks: str | None = Field(default=None, min_length=1)
    jwt_capabilities: str = Field(default="capabilities", min_length=1)
    jwt_subject: str = Field(default="sub", min_length=1)
    jwt_groups: str = Field(default="groups", min_length=1)
    oidc_issuer: str | None = Field(default=None, min_length=1)
    oidc_client_id: str | None = Field(default=None, min_length=1)
    oidc_client_secret: str | None = Field(default=None, min_length=1, repr=False)
    oidc_scopes: str = Field(default="openid", pattern=r"^[!-~]+( [!-~]+)*$")
    signin_keys: str | None = Field(default=None, repr=False)
    public_url: str | None = None
    allowed_hosts: Hosts = ()
    allowed_origins: Hosts = ()
    mcp: Literal["all"] | None = None
    ui_origin: Hosts = ()
    database_url: str = Field(default="sqlite:///.abeyance/records.db", repr=False)
    storage: str | None = Field(default=None, min_length=1)
    storage_shared: bool = False
    max_payload: int = Field(default=16_384, ge=1_024)
    encryption_keys: str | None = Field(default=None, repr=False)
    encryption_required: bool = False
    keep: OptionalSeconds = Field(default=None, gt=0)
    audit_key: str | None = Field(default=None, repr=False)
    notifications: Path | None = None
    slack_bot_token: str | None = Field(default=None, min_length=1, repr=False)
    slack_app_token: str | None = Field(default=None, min_length=1, repr=False)
    slack_signing_secret: str | None = Field(default=None, min_length=1, repr=False)
    slack_api: str = Field(default="https://slack.com/api/", pattern=r"^https?://[^\s?#]+$")
    metrics_address: str | None = None
    build_id: str | None = Field(default=None, min_length=1)
    versioning: Literal["off", "pinned", "auto-upgrade"] = "off"
    enable_metrics: bool = True
    open_metrics: bool = False
    max_queue_size: int = Field(default=100, ge=1)
    max_message_length: int = Field(default=10_000, ge=1)
    max_metadata_size: int = Field(default=100_000, ge=2)
    allowed_actions: Words = ()
    allowed_media_hosts: Hosts = ()
    max_body_size: int = Field(default=1_000_000, ge=1_000)
    max_visits: int = Field(default=1_000, ge=1)
    max_parallel_visits: int = Field(default=50, ge=1, le=1_000)
    pause_timeout: OptionalSeconds = Field(default=None, gt=0)
    default_timeout: Seconds = Field(default=300.0, gt=0)
    shutdown_grace: Seconds = Field(default=5.0, ge=0)
    continue_as_new_after: int = Field(default=1_500, ge=3)
    max_active_runs: int = Field(default=0, ge=0)
    max_active_runs_policy: Literal["evict-lru", "reject"] = "evict-lru"
    session_inactive_timeout: Seconds = Field(default=0.0, ge=0)

    @model_validator(mode="before")
    @classmethod
    def _preset(cls, values: Any) -> Any:
        # Explicit values override the preset; the field itself refuses an unknown preset.
        if not isinstance(values, dict):
            return values
        return {**PRESETS.get(str(values.get("preset")), {}), **values}

    @field_validator("timezone")
    @classmethod
    def _timezone(cls, value: str) -> str:
        if not is_zone(value):
            raise ValueError("no such time zone: use a name such as Europe/Berlin")
        return value

    @field_validator("tokens_file", "notifications", mode="before")
    @classmethod
    def _file(cls, value: Any) -> Any:
        # An empty path would be the current directory.
        if value == "":
            raise ValueError("name a file, or unset this")
        return value

    @field_validator("metrics_address")
    @classmethod
    def _metrics_address(cls, value: str | None) -> str | None:
        if value is not None and not _is_socket_address(value):
            raise ValueError("write an IP address and a port, such as 127.0.0.1:9000 or [::1]:9000")
        return value

    @field_validator("allowed_hosts", "allowed_media_hosts")
    @classmethod
    def _hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            if {*"/@*?#"} & {*host}:
                raise ValueError(
                    f"{host!r} is not a host; write name or name:port, without a scheme, a path or a "
                    "wildcard"
                )
        return hosts

    @field_validator("database_url")
    @classmethod
    def _database_url(cls, value: str) -> str:
        database_file(value)
        return value

    @field_validator("storage")
    @classmethod
    def _storage(cls, value: str | None) -> str | None:
        if value is not None:
            bucket = bucket_of(value)
            known = extensions.names_in(extensions.STORAGE)
            if bucket is not None and bucket.scheme not in known:
                raise ValueError(
                    f"no installed package stores at {bucket.scheme}://: write a folder, or one of "
                    f"{', '.join(f'{each}://bucket/prefix' for each in known)}"
                )
        return value

    @field_validator("audit_key")
    @classmethod
    def _audit_key(cls, value: str | None) -> str | None:
        if value is not None:
            SigningKey.parse(value)
        return value

    @field_validator("encryption_keys", "signin_keys")
    @classmethod
    def _encryption_keys(cls, value: str | None) -> str | None:
        if value is not None:
            Keyring.parse(value)
        return value

    @field_validator("encryption_required")
    @classmethod
    def _encryption_required(cls, value: bool, info: ValidationInfo) -> bool:  # noqa: FBT001
        # Invalid keys are missing from the data and reported by their own field.
        if value and info.data.get("encryption_keys", "") is None:
            raise ValueError(
                "encryption is required, but there is no key: set ABEYANCE_ENCRYPTION_KEYS to id:key, or "
                "unset this"
            )
        return value

    @field_validator("versioning")
    @classmethod
    def _versioning(cls, value: str, info: ValidationInfo) -> str:
        if value == "off":
            return value
        if info.data.get("build_id", "") is None:
            raise ValueError(
                "versions of workers need a name: set ABEYANCE_BUILD_ID to that of this build, such as a "
                "commit, or unset this"
            )
        queue = info.data.get("task_queue", "")
        if {".", ":"} & {*queue}:
            raise ValueError(
                f"the task queue {queue!r} names the worker deployment, which may have no '.' and no ':' "
                "in its name: choose another ABEYANCE_TASK_QUEUE, or unset this"
            )
        return value

    @field_validator("task_queue")
    @classmethod
    def _queue(cls, queue: str) -> str:
        if len(queue.encode()) > LONGEST_ID:
            raise ValueError(f"it has {len(queue.encode())} bytes, and the limit is {LONGEST_ID}")
        return queue

    @field_validator("ui_origin", "allowed_origins")
    @classmethod
    def _origins(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(_checked_origin, origins))

    @field_validator("public_url")
    @classmethod
    def _public_url(cls, url: str | None) -> str | None:
        return None if url is None else _checked_origin(url.rstrip("/").lower())

    @property
    def has_authentication(self) -> bool:
        """Return True if callers of the API must authenticate."""
        settings = (
            self.tokens_file,
            self.jwt_issuer,
            self.jwt_audience,
            self.jwt_jwks,
            self.oidc_issuer,
        )
        return any(value is not None for value in settings)

    @property
    def keyring(self) -> Keyring:
        """Return the encryption keys; an empty keyring if encryption is off."""
        return Keyring({}) if self.encryption_keys is None else Keyring.parse(self.encryption_keys)

    @property
    def signing_key(self) -> SigningKey | None:
        """Return the key that signs audits, None if they are not signed."""
        return None if self.audit_key is None else SigningKey.parse(self.audit_key)

    def limits(self) -> Limits:
        """Return the limits of a run, which its start may lower."""
        from abeyance.core.state import Limits  # noqa: PLC0415  (a command needs no state of runs)

        given = {each.name for each in fields(Limits)} & type(self).model_fields.keys()
        room = Limits().visit_bytes if self.storage is None else _STORED_VISIT_BYTES
        return Limits(**{name: getattr(self, name) for name in given}, visit_bytes=room)


def load_settings() -> Settings:
    """Load the settings of this process. Raises SettingsError, naming every invalid variable.

    A variable `ABEYANCE_*` that is not a setting is logged as a warning, once.
    """
    for warning in unknown_settings(os.environ):
        if warning not in _WARNED:
            _WARNED.add(warning)
            _logger.warning(warning)
    try:
        return Settings()
    except ValidationError as error:
        problems = "; ".join(
            # Show the variable as written, not as parsed; never show a secret.
            f"{name}={os.environ.get(name, entry['input'])!r}: {message}"
            if _is_public(entry["loc"])
            else f"{name}: {message}"
            for entry in error.errors(include_url=False)
            for name in ["_".join(["ABEYANCE", *map(str, entry["loc"])]).upper()]
            for message in [entry["msg"].removeprefix("Value error, ")]
        )
        raise SettingsError(f"invalid settings: {problems}") from error


def unknown_settings(environment: Mapping[str, str]) -> list[str]:
    """Return a warning for each variable `ABEYANCE_*` that is not a setting, with the nearest name."""
    known = [name.upper() for name in Settings.model_fields]
    secrets = _secrets_of_rules(environment)
    warnings = []
    for name in sorted(environment.keys() - secrets):
        # The case of a name does not matter.
        rest = name.upper().removeprefix(_PREFIX)
        if rest != name.upper() and rest not in known:
            nearest = get_close_matches(rest, known, n=1)
            fix = f"did you mean {_PREFIX}{nearest[0]}?" if nearest else "it has no effect"
            warnings.append(f"{name} is not a setting: {fix}")
    return warnings


def _checked_origin(origin: str) -> str:
    try:
        parts = urlsplit(origin)
        # A port that is not a number raises here.
        is_one = bool(parts.hostname) and parts.port != 0 and _ORIGIN.fullmatch(origin) is not None
    except ValueError:
        is_one = False
    if not is_one:
        raise ValueError(
            f"{origin!r} is not an origin; write http://host:port, without a path or a user"
        )
    return origin


def _is_socket_address(value: str) -> bool:
    try:
        parts = urlsplit(f"//{value}")
        ip_address(parts.hostname or "")
        return parts.netloc == value and parts.port is not None
    except ValueError:
        return False


def _secrets_of_rules(environment: Mapping[str, str]) -> set[str]:
    """Return the variables `ABEYANCE_*` that the notifications file names; none if it is unreadable."""
    path = environment.get(f"{_PREFIX}NOTIFICATIONS")
    try:
        text = "" if path is None else Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return set()
    return {*re.findall(rf"\b{_PREFIX}\w+", text)}


class Bucket(NamedTuple):
    """A storage that is not a folder. The `scheme` names its backend."""

    scheme: str
    name: str
    prefix: str


def bucket_of(storage: str) -> Bucket | None:
    """Return the bucket of a storage, None for a folder. Raises ValueError if neither."""
    scheme, separator, rest = storage.partition("://")
    if not separator and not storage.startswith("s3:"):
        return None
    name, _, prefix = rest.partition("/")
    if not name or "//" in prefix or {"?", "#", "@"} & {*rest}:
        raise ValueError(f"{storage!r} is not a storage; write a folder, or s3://bucket/prefix")
    return Bucket(scheme, name, prefix.strip("/"))


def database_file(url: str) -> Path | None:
    """Return the file of an SQLite database, None for PostgreSQL. Raises ValueError if neither.

    The error shows no part of the URL but its scheme: the others may have a password.
    """
    scheme, _, path = url.partition(":///")
    if scheme == "sqlite" and path not in ("", ":memory:"):
        if _OPTION.search(path):
            raise ValueError("an SQLite database has no options; write sqlite:///path, without ?")
        return Path(path)
    scheme = url.partition(":")[0] if "://" in url else ""
    if scheme not in ("postgresql", "postgresql+psycopg"):
        named = f"{scheme}://... is not a database of the records" if scheme else "it is not a URL"
        raise ValueError(f"{named}; write sqlite:///path or postgresql://user:password@host/name")
    try:
        parts = urlsplit(url)
        # urllib parses the port only here, and raises if it is invalid.
        is_plain = parts.port != 0 and parts.netloc.count("@") <= 1 and not parts.fragment
    except ValueError:
        is_plain = False
    if not is_plain or {"/", "@"} & {*parts.path[1:]}:
        raise ValueError(
            "it cannot be parsed; write postgresql://user:password@host:port/name, and @, :, /, ? and # "
            "within a name or a password as %40, %3A, %2F, %3F and %23"
        ) from None
    if not parts.path.strip("/"):
        raise ValueError("it names no database; write postgresql://user:password@host/name")
    return None


def _is_public(place: tuple[int | str, ...]) -> bool:
    field = Settings.model_fields.get(str(place[0])) if place else None
    return field is None or field.repr
