"""The file of hashed tokens: the API reads it, `abeyance token` changes it.

It is a JSON list of `{"subject": ..., "sha256": ..., "capabilities": [...]}`, with `groups` and `reads`
where the owner has any. Only the hash of a token is stored, so a reader of the file cannot call the API
with it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import stat
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final, TypeAlias

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
)

from abeyance.commands.fields import LabelName, LabelValue
from abeyance.core.policy import Principal, ReadRights, is_reserved
from abeyance.core.text import truncate
from abeyance.errors import SettingsError
from abeyance.schemas.faults import at_pointer

MAX_CHARS: Final = 256
"""Maximum characters of a subject, a capability, a group, and the value of a label."""
MAX_GROUPS: Final = 200
_TOKEN_BYTES: Final = 32
_SHORTEST_PREFIX: Final = 8
_SHOWN_HASH: Final = 12


_Name: TypeAlias = Annotated[str, Field(min_length=1, max_length=MAX_CHARS)]
_LabelValues: TypeAlias = Annotated[
    tuple[LabelValue, ...],
    BeforeValidator(lambda value: (value,) if isinstance(value, str) else value),
    Field(min_length=1, max_length=20),
]
Reads: TypeAlias = Annotated[dict[LabelName, _LabelValues], Field(max_length=20)]
"""The labels that a caller is bound to, each with the values that its runs may have."""
_READS: Final = TypeAdapter(Reads)


def read_rights(value: object) -> ReadRights:
    """Return the rights of a JSON object such as `{"team": "finance", "region": ["de", "at"]}`.

    Raises ValidationError.
    """
    return ReadRights.of(_READS.validate_python(value))


class Grant(BaseModel):
    """An entry of the file: the owner of a token, its hash, and what the owner may do and see."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    subject: str = Field(min_length=1, max_length=MAX_CHARS)
    sha256: str = Field(pattern=r"^[0-9a-fA-F]{64}$")
    capabilities: tuple[_Name, ...]
    groups: tuple[_Name, ...] = Field(default=(), max_length=MAX_GROUPS)
    reads: Reads = Field(default_factory=dict)

    @property
    def principal(self) -> Principal:
        """The principal of calls with the token."""
        return Principal(subject=self.subject, capabilities=self.capabilities, groups=self.groups)

    @property
    def short_hash(self) -> str:
        """The beginning of the hash, which `abeyance token revoke --hash` takes."""
        return self.sha256[:_SHOWN_HASH].lower()


_GRANTS: Final = TypeAdapter(tuple[Grant, ...])


def read_grants(path: Path) -> tuple[Grant, ...]:
    """Return the entries of a file, which may have none.

    Raises SettingsError with the position of the problem if it cannot be read or used.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SettingsError(f"the tokens file {path} cannot be read: {error.strerror}") from error
    return _parsed(path, content)


def hash_of_token(token: str) -> str:
    """Return the hash that identifies a token. A token is text that an HTTP header can hold."""
    return hashlib.sha256(token.encode("latin-1")).hexdigest()


def subject_fault(subject: str) -> str | None:
    """Return the reason why a text cannot be the subject of a principal, or None."""
    if not is_name(subject):
        return f"{truncate(subject, 100)!r} is not a subject: use 1 to {MAX_CHARS} printable characters"
    if is_reserved(subject):
        return f"the subject {subject!r} is reserved: choose another"
    return None


def is_name(text: str) -> bool:
    """Return whether a text can be a subject or a capability."""
    return 0 < len(text) <= MAX_CHARS and text == text.strip() and text.isprintable()


def add_token(
    path: Path,
    subject: str,
    capabilities: Sequence[str],
    *,
    groups: Sequence[str] = (),
    reads: Mapping[str, Sequence[str]] | None = None,
) -> str:
    """Add a new token for a subject, and return the token, which is stored nowhere. Make a missing file.

    `reads` binds the subject to the runs with one of these values of each label. Raises SettingsError if
    a name or the file cannot be used.
    """
    if (fault := subject_fault(subject)) is not None:
        raise SettingsError(fault)
    for what, names in {"capability": capabilities, "group": groups}.items():
        if wrong := [name for name in names if not is_name(name)]:
            raise SettingsError(
                f"{truncate(wrong[0], 100)!r} is not a {what}: use 1 to {MAX_CHARS} printable characters"
            )
    token = secrets.token_hex(_TOKEN_BYTES)
    try:
        grant = Grant(
            subject=subject,
            sha256=hash_of_token(token),
            capabilities=tuple(dict.fromkeys(capabilities)),
            groups=tuple(dict.fromkeys(groups)),
            reads=_READS.validate_python(reads or {}),
        )
    except ValidationError as error:
        faults = "; ".join(f"{fault['pointer']}: {fault['message']}" for fault in at_pointer(error))
        raise SettingsError(f"the token cannot have these groups or reads: {faults}") from error
    _change(path, lambda grants: (*grants, grant))
    return token


def revoke_tokens(path: Path, subject: str, prefix: str | None = None) -> tuple[Grant, ...]:
    """Remove a subject's tokens, or only those whose hash begins with `prefix`, and return their entries.

    Raises SettingsError if there is no such token, and as `add_token`.
    """
    if prefix is not None and len(prefix) < _SHORTEST_PREFIX:
        raise SettingsError(
            f"--hash: {prefix!r} is too short: write {_SHORTEST_PREFIX} digits or more"
        )
    revoked: list[Grant] = []

    def remaining(grants: tuple[Grant, ...]) -> tuple[Grant, ...]:
        start = (prefix or "").lower()
        revoked[:] = [
            grant
            for grant in grants
            if grant.subject == subject and grant.sha256.lower().startswith(start)
        ]
        if not revoked:
            about = "" if prefix is None else f" whose hash begins with {prefix!r}"
            raise SettingsError(
                f"{path} has no token of {subject!r}{about}: `abeyance token list` shows all"
            )
        return tuple(grant for grant in grants if grant not in revoked)

    _change(path, remaining)
    return tuple(revoked)


def _parsed(path: Path, content: bytes) -> tuple[Grant, ...]:
    try:
        grants = _GRANTS.validate_json(content)
    except ValidationError as error:
        faults = "; ".join(
            f"{fault['pointer'] or '(the file)'}: {fault['message']}" for fault in at_pointer(error)
        )
        raise SettingsError(
            f"the tokens file {path} is not a list of "
            f'{{"subject": ..., "sha256": ..., "capabilities": [...]}}: {faults}'
        ) from error
    _check(path, grants)
    return grants


def _check(path: Path, grants: Sequence[Grant]) -> None:
    """Raise SettingsError if an API would not take a file with these entries."""
    if reserved := sorted({each.subject for each in grants if is_reserved(each.subject)}):
        raise SettingsError(
            f"the tokens file {path} has the reserved subject {reserved[0]!r}: choose another"
        )
    if alike := _alike({each.subject for each in grants}):
        raise SettingsError(
            f"the tokens file {path} cannot have both subjects {alike[0]!r} and {alike[1]!r}: people "
            "read them as the same, but they count as two. Use one of them"
        )
    counts = Counter(grant.sha256.lower() for grant in grants)
    if repeated := [digest for digest, count in counts.items() if count > 1]:
        raise SettingsError(
            f"the tokens file {path} has the token hash {repeated[0][:12]}... twice: remove one"
        )


def _alike(subjects: Iterable[str]) -> tuple[str, str] | None:
    """Return two subjects that differ only in case or in Unicode form, if there are any."""
    seen: dict[str, str] = {}
    for subject in sorted(subjects):
        read_as = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", subject).casefold())
        if (other := seen.setdefault(read_as, subject)) != subject:
            return other, subject
    return None


def _change(path: Path, change: Callable[[tuple[Grant, ...]], tuple[Grant, ...]]) -> None:
    """Replace the file by one with the changed entries, while no other process changes it."""
    # The path may be a link, as for a mounted secret.
    path = path.resolve()
    try:
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            # Lock the folder, because the file is replaced: a process that waits for a lock on the old
            # file would go on with a file that nobody reads any more.
            fcntl.flock(folder, fcntl.LOCK_EX)
            owner = path.stat() if path.exists() else None
            grants = () if owner is None else _parsed(path, path.read_bytes())
            changed = change(grants)
            _check(path, changed)
            content = _GRANTS.dump_json(changed, indent=2, exclude_defaults=True)
            _replace(path, content + b"\n", owner)
        finally:
            os.close(folder)
    except OSError as error:
        raise SettingsError(
            f"the tokens file {path} cannot be changed: {error.strerror}"
        ) from error


def _replace(path: Path, content: bytes, owner: os.stat_result | None) -> None:
    """Write a file, all of it or nothing. A new file is readable by its owner only; an existing one keeps
    its mode.
    """
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            if owner is not None and (owner.st_uid, owner.st_gid) != (os.getuid(), os.getgid()):
                # An API that runs as another user must still be able to read the file.
                os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
            if owner is not None:
                # Else an API that reads the file by its group could not, and would keep revoked tokens.
                os.fchmod(file.fileno(), stat.S_IMODE(owner.st_mode) & 0o666)
        Path(name).replace(path)
    except BaseException:
        with suppress(FileNotFoundError):
            Path(name).unlink()
        raise
