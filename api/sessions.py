"""Sessions of people who signed in: each is a cookie in a browser, sealed by this service.

A cookie has no more than a request needs. For a token of the tokens file it has the hash, and the file
still says what the owner may do. For a token of an issuer it has the verified claims: a session goes on
while the identity provider cannot be reached. All processes of a deployment share the keys, and nothing
else.
"""

from __future__ import annotations

import base64
import logging
import secrets
import time
from typing import TYPE_CHECKING, Final, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict
from starlette.requests import Request
from starlette.responses import Response

from abeyance.core.policy import Principal, ReadRights
from abeyance.errors import Code, Refusal
from abeyance.keyring import Keyring, WrongKey, owner_of

if TYPE_CHECKING:
    from abeyance.settings import Settings

S = TypeVar("S", bound="Sealed")

SIGN_IN: Final = "/signin"
CALLBACK: Final = "/signin/callback"
SIGN_IN_SECONDS: Final = 600
"""How long somebody may take at the identity provider."""

_COOKIE: Final = "abeyance"
_PENDING_COOKIE: Final = "abeyance-signin"
_ON_HOST: Final = "__Host-"
"""A browser accepts a cookie of this name only over https, from this host itself, and for all paths."""
_MAX_COOKIE: Final = 4_000
"""In characters: browsers keep 4,096 bytes of a cookie, with its name and attributes."""
_MOST_SECONDS: Final = 28_800.0
"""The longest duration of a session: eight hours."""
_MAX_ENDED: Final = 10_000
_KEY_BYTES: Final = 32
_logger = logging.getLogger("abeyance.api")


class Sealed(BaseModel):
    """The content of a sealed cookie, valid until a Unix time."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    until: float

    @property
    def is_over(self) -> bool:
        """Whether its time is over."""
        return time.time() >= self.until


class Session(Sealed):
    """The session of somebody who signed in with a token of the tokens file (`sha256`) or an `issuer`."""

    id: str
    sha256: str | None = None
    issuer: str | None = None
    principal: Principal | None = None
    reads: ReadRights | None = None


class Pending(Sealed):
    """A sign-in under way at the identity provider; `next` is the path to which the person returns."""

    state: str
    nonce: str
    verifier: str
    next: str


class Sessions:
    """The cookies of one process, sealed with `keys`.

    Without keys the process makes a key, and logs a warning when it first uses it: no other process can
    open these cookies, nor can this one after a restart.
    """

    def __init__(self, keys: Keyring) -> None:
        self._is_warned = bool(keys)
        self._keys = keys or Keyring({"process": secrets.token_bytes(_KEY_BYTES)})
        self._ended: dict[str, float] = {}

    @classmethod
    def read(cls, settings: Settings) -> Self:
        text = settings.signin_keys
        return cls(Keyring({}) if text is None else Keyring.parse(text))

    @staticmethod
    def until(expires_at: float | None) -> float:
        """Return the end of a session that begins now, with a token that expires at `expires_at`."""
        latest = time.time() + _MOST_SECONDS
        return latest if expires_at is None else min(latest, expires_at)

    def begin(self, response: Response, session: Session, *, is_https: bool) -> None:
        """Set the cookie of a session. Raises `payload_too_large` if a browser would not keep it."""
        text = self._seal(session)
        if len(text) > _MAX_COOKIE:
            raise Refusal(
                Code.PAYLOAD_TOO_LARGE,
                f"Your capabilities, groups and labels take {len(text)} characters, and the cookie of a "
                f"session holds {_MAX_COOKIE}: ask the issuer to put fewer into the token.",
                limit=_MAX_COOKIE,
                actual=len(text),
            )
        name = f"{_ON_HOST}{_COOKIE}" if is_https else _COOKIE
        _set(response, name, text, session, is_https=is_https, path="/", same_site="strict")

    def current(self, request: Request) -> Session | None:
        """Return the session of a request, None if it has no valid one."""
        for name in (f"{_ON_HOST}{_COOKIE}", _COOKIE):
            if (text := request.cookies.get(name)) is not None:
                session = self._open(text, Session)
                return None if session is None or self.is_ended(session.id) else session
        return None

    def end(self, request: Request, response: Response) -> None:
        """End the session of a request, and have the browser forget its cookie.

        From now on this process refuses a copy of the cookie. Other processes accept a copy until the
        session is over.
        """
        if (session := self.current(request)) is not None:
            now = time.time()
            self._ended = {id_: until for id_, until in self._ended.items() if until > now}
            self._ended[session.id] = session.until
            if len(self._ended) > _MAX_ENDED:
                del self._ended[next(iter(self._ended))]
        for name in (f"{_ON_HOST}{_COOKIE}", _COOKIE):
            if name in request.cookies:
                is_https = name.startswith(_ON_HOST)
                response.delete_cookie(name, secure=is_https, httponly=True, samesite="strict")

    def is_ended(self, session_id: str) -> bool:
        """Return whether somebody signed out of the session here."""
        return session_id in self._ended

    def leave(self, response: Response, pending: Pending, *, is_https: bool) -> None:
        """Set the cookie of somebody who goes to the identity provider."""
        name, text = _PENDING_COOKIE, self._seal(pending)
        # The browser comes back by a link from another site, and sends no strict cookie then.
        _set(response, name, text, pending, is_https=is_https, path=CALLBACK, same_site="lax")

    def returned(self, request: Request) -> Pending | None:
        """Return the sign-in that comes back from the identity provider, None if there is none."""
        text = request.cookies.get(_PENDING_COOKIE)
        return None if text is None else self._open(text, Pending)

    @staticmethod
    def forget(response: Response) -> None:
        """Delete the cookie of somebody who went to the identity provider."""
        response.delete_cookie(_PENDING_COOKIE, path=CALLBACK, httponly=True, samesite="lax")

    def seal(self, purpose: str, data: bytes) -> str:
        """Seal data that a caller keeps for this service, as text that nobody else can read or make.

        `purpose` has a slash, which no run id has: data encrypted for a run cannot pass for this data.
        """
        if not self._is_warned:
            self._is_warned = True
            _logger.warning(
                "code=signin_keys | ABEYANCE_SIGNIN_KEYS is not set: sessions of people who sign in, and "
                "the state of calls by MCP, are known to this process alone, until it stops"
            )
        sealed = self._keys.seal(data, run_id=purpose)
        # A value with `=` would be set in quotes.
        return base64.urlsafe_b64encode(sealed).decode().rstrip("=")

    def open(self, purpose: str, text: str) -> bytes | None:
        """Return the content of a text that was sealed for a purpose, None if it was not."""
        try:
            sealed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
            data = self._keys.open(sealed)
        except (ValueError, WrongKey):
            return None
        return data if owner_of(sealed) == purpose else None

    def _seal(self, content: Sealed) -> str:
        data = content.model_dump_json(exclude_none=True).encode()
        return self.seal(_purpose(type(content)), data)

    def _open(self, text: str, kind: type[S]) -> S | None:
        data = self.open(_purpose(kind), text)
        try:
            content = None if data is None else kind.model_validate_json(data)
        except ValueError:
            return None
        return None if content is None or content.is_over else content


def _purpose(kind: type[Sealed]) -> str:
    return f"cookie/{kind.__name__}"


def _set(
    response: Response,
    name: str,
    text: str,
    content: Sealed,
    *,
    is_https: bool,
    path: str,
    same_site: Literal["lax", "strict"],
) -> None:
    response.set_cookie(
        name,
        text,
        max_age=max(0, int(content.until - time.time())),
        path=path,
        secure=is_https,
        httponly=True,
        samesite=same_site,
    )
