"""The checks that every request passes before its route: host, origin, content type, token and body.

Any page that a user has open can send requests to a service on loopback. It cannot forge three things:
the host, the origin that the browser sends, and a content type that makes the browser ask first. The
guard checks these in every mode, and no response allows another origin to read it. Two exceptions:
configured pages of Temporal's UI may call the codec, and configured pages may call protocols with a
token. The guard authenticates the caller before it reads a body.

The guard reads bodies, once. Their size, their number of values and their depth are limited, and they
must be strict JSON: UTF-8, finite numbers, no lone surrogates, and unique keys. The guard counts values
before it parses a body: a parser creates an object for every two brackets, which would block the service.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Collection
from itertools import accumulate
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from abeyance.api.auth import Tokens
from abeyance.api.problems import refused, unavailable
from abeyance.api.protocols import Protocol
from abeyance.api.sessions import CALLBACK, SIGN_IN
from abeyance.core.policy import Principal
from abeyance.core.text import truncate
from abeyance.errors import Code, Refusal, Unavailable
from abeyance.notifications.links import PATH as LINKS
from abeyance.util import is_loopback

EMPTY_BODY_HEADER: Final = "X-Abeyance-Request"
"""The header for requests without a body. Pages of other origins cannot send it."""
MAX_DEPTH: Final = 64
"""The maximum nesting of a body."""
MAX_VALUES: Final = 100_000
"""The maximum number of values in a body, including lists and objects."""

_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
# Orchestrators call these under any host name. The responses have no data.
_ANY_HOST: Final = frozenset({"/healthz", "/readyz"})
# Links from mails and chats lead to these pages, which have no data.
_RUN_PAGE: Final = re.compile(r"/inbox/(approvals|grants|runs(/[^/]+)?)")
_PAGES: Final = frozenset({"/", "/inbox", SIGN_IN, CALLBACK})
# These need no credentials, and their bodies are small.
_OF_SESSIONS: Final = frozenset({SIGN_IN, "/signout"})
_MAX_SIGN_IN: Final = 32_000
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_DRAIN_FACTOR: Final = 16
"""The multiple of the limit up to which the guard drains a body that is too large."""
_DRAIN_SECONDS: Final = 5.0
_CODEC: Final = frozenset({"/codec/decode", "/codec/encode"})
_MAX_CODEC_BODY: Final = 8_000_000
"""In bytes. The UI sends several payloads at once, of up to 2 MB each."""
_CODEC_PREFLIGHT: Final = ("POST", "authorization, content-type, x-namespace")
_PROTOCOL_HEADERS: Final = ("authorization", "content-type")
_THREAD_BYTES: Final = 100_000
"""The size from which a body is parsed in a thread."""
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_STEP: Final = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_SHOWN_CHARS: Final = 100


class OriginGuard:
    """ASGI middleware. `hosts` are allowed hosts beside the server's own, as `name` or `name:port`.

    `max_body_size` is in bytes. If the application `has_codec`, requests to the codec may be larger, and
    pages of `ui_origins` may call it. Pages of `protocol_origins` may call the `protocols`, with a token.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Collection[str],
        tokens: Tokens,
        max_body_size: int,
        has_codec: bool = False,
        ui_origins: Collection[str] = (),
        protocols: Collection[Protocol] = (),
        protocol_origins: Collection[str] = (),
    ) -> None:
        self._app = app
        self._tokens = tokens
        self._has_codec = has_codec
        self._ui_origins = frozenset(ui_origins)
        self._protocols = tuple(protocols)
        self._protocol_origins = frozenset(protocol_origins)
        self._hosts = frozenset(host.lower() for host in hosts)
        self._max_body_size = max_body_size

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        ui, page = self._ui_of(scope, headers), self._page_of(scope, headers)
        send = _with_security_headers(send, ui, page)
        try:
            self._check_origin(scope, headers, ui or page)
            if (ui or page) is not None and scope["method"] == "OPTIONS":
                # A preflight request has no credentials.
                await self._preflight(scope)(scope, receive, send)
                return
            _check_token(headers, page)
            if scope["method"] not in _SAFE:
                _check_content_type(headers)
                if scope["path"] in _OF_SESSIONS or _is_of_link(scope):
                    # Their credentials are in the body or in the address.
                    limit = min(_MAX_SIGN_IN, self._max_body_size)
                else:
                    credentials = await self._tokens.authenticate(Request(scope))
                    limit = self._max_size(scope, credentials.principal)
                body = await _read_body(headers, receive, limit)
                if body is None:
                    return
                if body:
                    _check_content_type(headers, body)
                    await check_body(body)
                receive = _replay(body, receive)
        except Refusal as refusal:
            # The rest of the body may still arrive or, with `Expect`, never arrive: the connection
            # cannot be reused.
            is_cut = refusal.code is Code.PAYLOAD_TOO_LARGE or "expect" in headers
            response = refused(refusal, headers={"Connection": "close"} if is_cut else None)
            await response(scope, receive, send)
            return
        except Unavailable as error:
            response = unavailable(str(error), retry_after=error.retry_after)
            await response(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _max_size(self, scope: Scope, caller: Principal) -> int:
        if self._has_codec and scope["path"] in _CODEC and caller.may("admin"):
            return max(self._max_body_size, _MAX_CODEC_BODY)
        protocol = self._protocol_of(scope)
        return max(self._max_body_size, 0 if protocol is None else protocol.largest_body)

    def _protocol_of(self, scope: Scope) -> Protocol | None:
        path = str(scope["path"])
        return next((each for each in self._protocols if each.has(path)), None)

    def _preflight(self, scope: Scope) -> Response:
        methods, allowed = _CODEC_PREFLIGHT
        if (protocol := self._protocol_of(scope)) is not None:
            methods, allowed = "GET, POST", ", ".join((*_PROTOCOL_HEADERS, *protocol.headers))
        headers = {
            "Access-Control-Allow-Methods": methods,
            "Access-Control-Allow-Headers": allowed,
            "Access-Control-Max-Age": "600",
        }
        return Response(status_code=204, headers=headers)

    def _ui_of(self, scope: Scope, headers: Headers) -> str | None:
        """Return the origin, if a page of Temporal's UI calls the codec."""
        origins = headers.getlist("origin")
        is_ui = scope["path"] in _CODEC and len(origins) == 1 and origins[0] in self._ui_origins
        return origins[0] if is_ui else None

    def _page_of(self, scope: Scope, headers: Headers) -> str | None:
        """Return the origin, if an allowed page calls a protocol."""
        if not self._tokens.accept_tokens or self._protocol_of(scope) is None:
            return None
        origins = headers.getlist("origin")
        is_allowed = len(origins) == 1 and origins[0] in self._protocol_origins
        return origins[0] if is_allowed else None

    def _check_origin(self, scope: Scope, headers: Headers, page: str | None = None) -> None:
        """Refuse a host or an origin that is not allowed. `page` is an origin that is allowed."""
        hosts = headers.getlist("host")
        if scope["path"] not in _ANY_HOST and not (
            len(hosts) == 1 and self._is_allowed(f"{scope['scheme']}://{hosts[0]}", scope)
        ):
            raise _foreign(
                f"The host {truncate(', '.join(hosts), 200)!r} is not allowed: use the name and port "
                "of the service, or add the host to ABEYANCE_ALLOWED_HOSTS."
            )
        if page is not None:
            return
        origins = headers.getlist("origin")
        for origin in origins:
            if not self._is_allowed(origin, scope):
                raise _foreign(
                    f"The origin {truncate(origin, 200)!r} is not allowed: {self._why_not(origin)}."
                )
        site = headers.get("sec-fetch-site", "none").lower()
        if site == "same-site" and origins:
            return
        is_followed = headers.get("sec-fetch-mode", "").lower() == "navigate"
        path = scope["path"]
        is_page = path in _PAGES or _is_of_link(scope) or _RUN_PAGE.fullmatch(path) is not None
        if is_followed and scope["method"] == "GET" and is_page:
            return
        if site not in ("none", "same-origin"):
            raise _foreign(
                f"The request comes from another site (Sec-Fetch-Site: {site[:50]}): only pages of this "
                "service may call it."
            )

    def _why_not(self, origin: str) -> str:
        if origin in self._protocol_origins and not self._tokens.accept_tokens:
            return (
                "ABEYANCE_ALLOWED_ORIGINS lists it, but its pages need a token, and this service is "
                "configured without tokens"
            )
        return "only pages of this service may call it"

    def _is_allowed(self, origin: str, scope: Scope) -> bool:
        try:
            parts = urlsplit(origin)
            name, port = parts.hostname, parts.port or _DEFAULT_PORTS[parts.scheme]
        except (KeyError, ValueError):
            return False
        if (
            name is None
            or parts.username is not None
            or parts.path
            or parts.query
            or parts.fragment
        ):
            return False
        if self._hosts & {name, _host_port(name, port)}:
            return True
        server = scope.get("server")
        if server is None or port != server[1]:
            return False
        return name == server[0] or is_loopback(name)


def _check_token(headers: Headers, page: str | None) -> None:
    """Raise `unauthenticated` for a page of another origin without a token.

    A session does not count for such a page: a browser sends the cookie with every page's requests.
    """
    if page is not None and "authorization" not in headers:
        raise Refusal(
            Code.UNAUTHENTICATED,
            "A page of another origin needs a token: send Authorization: Bearer <token>.",
        )


def _is_of_link(scope: Scope) -> bool:
    """Return whether a request is to a personal link, which needs no other credentials."""
    return str(scope["path"]).startswith(f"{LINKS}/")


def _check_content_type(headers: Headers, body: bytes = b"") -> None:
    """Raise `unsupported_media_type` for a request that a page of another origin could send."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and (body or EMPTY_BODY_HEADER not in headers):
        found = f"The content type {truncate(kind, 100)!r} is not accepted: set" if kind else "Set"
        raise Refusal(
            Code.UNSUPPORTED_MEDIA_TYPE,
            f"{found} the header Content-Type: application/json or, for a call without a body, "
            f"{EMPTY_BODY_HEADER}: 1.",
        )


async def _read_body(headers: Headers, receive: Receive, limit: int) -> bytes | None:
    """Return the body, or None if the caller disconnects."""
    declared = headers.get("content-length", "")
    if re.fullmatch("[0-9]{1,20}", declared) and int(declared) > limit:
        # With `Expect` the caller waits for the response. Others read it after they sent the body.
        if "expect" not in headers:
            await _drain(receive, limit * _DRAIN_FACTOR)
        raise _too_large(int(declared), limit)
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        chunk: bytes = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            chunks.clear()
            if message.get("more_body"):
                await _drain(receive, limit * _DRAIN_FACTOR)
            raise _too_large(None, limit)
        chunks.append(chunk)
        if not message.get("more_body"):
            return b"".join(chunks)


def _too_large(actual: int | None, limit: int) -> Refusal:
    size = "is larger" if actual is None else f"has {actual} bytes"
    members = {} if actual is None else {"actual": actual}
    return Refusal(
        Code.PAYLOAD_TOO_LARGE,
        f"The body {size}; the limit is {limit} bytes. Send a reference to large data.",
        limit=limit,
        **members,
    )


async def _drain(receive: Receive, left: int) -> None:
    # A caller reads the response only after sending everything.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_SECONDS):
            while left > 0:
                message = await receive()
                left -= len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body"):
                    return


def _replay(body: bytes, receive: Receive) -> Receive:
    is_pending = True

    async def replay() -> Message:
        nonlocal is_pending
        if is_pending:
            is_pending = False
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return replay


def _with_security_headers(send: Send, ui: str | None, page: str | None) -> Send:
    async def with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.setdefault("X-Content-Type-Options", "nosniff")
            headers.setdefault("Cache-Control", "no-store")
            if ui is not None:
                headers["Access-Control-Allow-Origin"] = ui
                headers["Access-Control-Allow-Credentials"] = "true"
                headers.add_vary_header("Origin")
            if page is not None:
                # No `Allow-Credentials`: a cookie does not count for such a page.
                headers["Access-Control-Allow-Origin"] = page
                headers.add_vary_header("Origin")
        await send(message)

    return with_headers


def _host_port(name: str, port: int) -> str:
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"


def _foreign(message: str) -> Refusal:
    return Refusal(Code.FOREIGN_ORIGIN, message)


async def check_body(body: bytes) -> None:
    """Raise `malformed_body` or `payload_too_large` unless the body is strict JSON within the limits."""
    if len(body) <= _THREAD_BYTES:
        check_json(body)
    else:
        await asyncio.to_thread(check_json, body)


def check_json(body: bytes) -> None:
    """Do the same as `check_body`, in the calling thread."""
    _check_structure(body)
    try:
        value = json.loads(
            body.decode(),
            parse_constant=_refuse_constant,
            parse_float=_finite,
            parse_int=_integer,
            object_pairs_hook=_unique_keys,
        )
        if _SURROGATE.search(body):
            # A lone surrogate can be neither stored nor displayed.
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise _too_deep() from None
    except UnicodeEncodeError:
        raise _malformed("it has an unpaired surrogate") from None
    except UnicodeDecodeError as error:
        raise _malformed(f"it is not UTF-8 ({error.reason} at byte {error.start})") from None
    except ValueError as error:
        raise _malformed(str(error)) from None


def _check_structure(body: bytes) -> None:
    opened = body.count(b"[") + body.count(b"{")
    if opened <= MAX_DEPTH and opened + body.count(b",") < MAX_VALUES:
        return
    # Drop strings, which can have brackets and commas. The parser later refuses an unclosed string.
    bare = b"".join(body.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')[::2])
    # Each value but the outermost is the first in a list or object, or follows a comma.
    values = 1 + bare.count(b"[") + bare.count(b"{") + bare.count(b",")
    if values > MAX_VALUES:
        raise Refusal(
            Code.PAYLOAD_TOO_LARGE,
            f"The body has {values} values; the limit is {MAX_VALUES}. Send a reference to large data.",
            limit=MAX_VALUES,
            actual=values,
        )
    brackets = bare.translate(None, _NOT_BRACKETS)
    if max(accumulate(map(_STEP.__getitem__, brackets)), default=0) > MAX_DEPTH:
        raise _too_deep()


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                shown = key[:_SHOWN_CHARS]
                raise Refusal(
                    Code.MALFORMED_BODY,
                    f"The body has the key {shown!r} twice in one object: send each key once.",
                    key=shown,
                )
            seen.add(key)
    return value


def _refuse_constant(name: str) -> Any:
    message = f"{name} is not a JSON value"
    raise ValueError(message)


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise _too_large_number(text)
    return value


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        # Python refuses integers of more than some thousand digits.
        raise _too_large_number(text) from None


def _too_large_number(text: str) -> ValueError:
    return ValueError(f"the number {truncate(text, 50)} is too large")


def _malformed(problem: str) -> Refusal:
    return Refusal(Code.MALFORMED_BODY, f"The body is not JSON: {problem}.")


def _too_deep() -> Refusal:
    return Refusal(
        Code.MALFORMED_BODY,
        f"The body is nested more than {MAX_DEPTH} levels deep: flatten it.",
        limit=MAX_DEPTH,
    )
