"""Calls of the HTTP API. Problem documents (RFC 9457) become exceptions."""

from __future__ import annotations

import json
import math
import re
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

import httpx

from abeyance.errors import AbeyanceError, Code, Refusal, SettingsError, Unavailable
from abeyance.util import checked_key, is_loopback

_CONNECT_SECONDS: Final = 5.0
_READ_SECONDS: Final = 60.0
"""Longer than the longest poll."""
_STREAM_SECONDS: Final = 45.0
"""Read timeout of a stream, which sends a line every 15 seconds."""
_SUBJECT_HEADER: Final = "X-Abeyance-Principal"
_AWAY: Final = frozenset({502, 503, 504})
_UNAUTHENTICATED: Final = 401
_DEFECT: Final = 500
_LAST_PORT: Final = 65_535
_LARGEST_PAGE: Final = 1_000
_TOKEN: Final = re.compile("[!-~]+")
_STREAM: Final = "text/event-stream"
_CODES: Final = frozenset(Code)
_STANDARD: Final = frozenset({"type", "title", "status", "detail", "code"})
_RENAMED: Final = {"interrupt_status": "status"}
"""Members of problem documents that have another name in `Refusal.details`."""


class ApiProblem(AbeyanceError):
    """The API responded with a problem document whose code is not one of Abeyance's.

    The text of the exception has the code, the detail, and one line of errors.
    """

    def __init__(self, text: str, problem: Mapping[str, Any]) -> None:
        self.problem = problem
        AbeyanceError.__init__(self, text)


class ApiRefusal(ApiProblem, Refusal):
    """The API refused a call. Nothing has changed."""

    def __init__(self, text: str, problem: Mapping[str, Any]) -> None:
        ApiProblem.__init__(self, text, problem)
        self.code = Code(problem["code"])
        self.message = str(problem.get("detail"))
        self.details = {
            _RENAMED.get(name, name): value
            for name, value in problem.items()
            if name not in _STANDARD
        }


class ApiUnavailable(ApiProblem, Unavailable):
    """The API cannot process the call now. The call may be repeated."""

    def __init__(self, text: str, problem: Mapping[str, Any], retry_after: float) -> None:
        ApiProblem.__init__(self, text, problem)
        self.retry_after = retry_after


class Connection:
    """A connection to the API at `url`, with an optional bearer `token`.

    `subject` names the caller to an API without authentication. Raises SettingsError for an invalid url,
    and for a token that no header can hold.
    """

    def __init__(self, url: str, token: str | None = None, *, subject: str | None = None) -> None:
        self._address = url.rstrip("/")
        self.url = _checked(url)
        if token and _TOKEN.fullmatch(token) is None:
            # Do not print it: a token is a secret.
            raise SettingsError(
                "ABEYANCE_TOKEN contains a character that no token has, such as a line break or a blank"
            )
        address = httpx.URL(url)
        is_local = is_loopback(address.host)
        # Certificates take long to load, and plain http to this machine needs none.
        is_plain = is_local and address.scheme == "http"
        self._http = httpx.AsyncClient(
            headers=[
                *([(b"Authorization", f"Bearer {token}".encode())] if token else []),
                *([] if subject is None else [(_SUBJECT_HEADER.encode(), subject.encode())]),
            ],
            timeout=httpx.Timeout(_READ_SECONDS, connect=_CONNECT_SECONDS),
            # A proxy cannot reach the loopback of this machine.
            trust_env=not is_local,
            verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if is_plain else True,
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def get(self, path: str, **params: str | Sequence[str]) -> Any:
        """Send a GET request, and return the JSON of the response.

        Raises Refusal, Unavailable, ApiProblem, SettingsError if the server is not an Abeyance API, and
        AbeyanceError after `close`.
        """
        return await self._json("GET", path, params=params)

    async def pages(
        self, path: str, most: int | None = None, /, **query: str | Sequence[str]
    ) -> AsyncIterator[dict[str, Any]]:
        """Yield the pages of a list, from its `cursor` on, with at most `most` items. Raises as `get`.

        The cursor of a list that still grows is never null, but stands still once nothing is new.
        """
        left = math.inf if most is None else most
        while True:
            page = await self.get(path, **query, limit=str(min(left, _LARGEST_PAGE)))
            yield page
            left -= len(page["items"])
            if left <= 0 or page["next_cursor"] in (None, query.get("cursor")):
                return
            query["cursor"] = page["next_cursor"]

    async def post(
        self,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        key: str | None = None,
        **query: str,
    ) -> Any:
        """Send a POST request, with an optional idempotency `key`. Raises as `get`."""
        return (await self.post_for_status(path, body, key=key, **query))[1]

    async def post_for_status(
        self,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        key: str | None = None,
        **query: str,
    ) -> tuple[int, Any]:
        """Like `post`, but also return the HTTP status."""
        headers = _with_key(key)
        return await self._call("POST", path, params=query, json=dict(body or {}), headers=headers)

    async def send(
        self, method: str, path: str, body: Mapping[str, Any], *, key: str | None = None
    ) -> Any:
        """Send a request with a body. Raises as `get`."""
        return await self._json(method, path, json=dict(body), headers=_with_key(key))

    async def delete(self, path: str, *, key: str | None = None) -> Any:
        """Send a DELETE request. Raises as `get`."""
        # The API requires this content type for changes, because a foreign page cannot send it.
        headers = {"Content-Type": "application/json", **_with_key(key)}
        return await self._json("DELETE", path, headers=headers)

    async def text(self, path: str) -> str:
        """Send a GET request, and return the plain text of the response. Raises as `get`."""
        return (await self.content(path, "text/plain")).decode()

    async def content(self, path: str, media_type: str = "") -> bytes:
        """Send a GET request, and return the unchanged body of the response, which may have any type
        unless `media_type` names one. Raises as `get`.
        """
        accepted = {"Accept": media_type or "*/*"}
        with self._reached():
            response = await self._http.get(self._address + path, headers=accepted)
        self._check(response, media_type, is_expected=_is_of_type(response, media_type))
        return response.content

    @asynccontextmanager
    async def stream(
        self, path: str, last_id: str | None, **query: str | Sequence[str]
    ) -> AsyncIterator[AsyncIterator[Mapping[str, Any] | None]]:
        """Open a stream of server-sent events after the event `last_id`; None starts at the first.

        Yield None for each keep-alive comment. Raises as `get`, and Unavailable if the stream is
        interrupted.
        """
        headers = {"Accept": _STREAM, **({"Last-Event-ID": last_id} if last_id else {})}
        timeout = httpx.Timeout(_STREAM_SECONDS, connect=_CONNECT_SECONDS)
        url = self._address + path
        with self._reached():
            async with self._http.stream(
                "GET", url, params=query, headers=headers, timeout=timeout
            ) as response:
                if response.is_error:
                    await response.aread()
                is_stream = _is_of_type(response, _STREAM)
                self._check(response, "a stream of events", is_expected=is_stream)
                yield _events(response)

    async def _json(self, method: str, path: str, **options: Any) -> Any:
        return (await self._call(method, path, **options))[1]

    async def _call(self, method: str, path: str, **options: Any) -> tuple[int, Any]:
        with self._reached():
            response = await self._http.request(method, self._address + path, **options)
        body = _json(response)
        self._check(response, "JSON", is_expected=isinstance(body, Mapping) and bool(body))
        return response.status_code, body

    @contextmanager
    def _reached(self) -> Iterator[None]:
        if self._http.is_closed:
            raise AbeyanceError(f"the client of {self.url} is closed: make another one")
        try:
            yield
        except UnicodeEncodeError as error:
            raise SettingsError(
                f"{error.object[:100]!r} cannot be sent: it is not valid Unicode ({error.reason})"
            ) from error
        except httpx.RequestError as error:
            if _is_of_another_protocol(error):
                raise SettingsError(
                    f"{self.url} does not answer as an HTTP server ({error}): set ABEYANCE_URL to the "
                    "address of an Abeyance API"
                ) from error
            raise Unavailable(
                f"no API answers at {self.url} ({error or type(error).__name__}): start one with "
                "`abeyance dev` or `abeyance api`, or set ABEYANCE_URL to its address"
            ) from error

    def _check(self, response: httpx.Response, expected: str, *, is_expected: bool) -> None:
        """Raise the error that a response reports, or one for a response that no Abeyance API sent."""
        if response.is_success and is_expected:
            return
        problem = _json(response) if response.is_error else None
        if isinstance(problem, Mapping) and isinstance(problem.get("code"), str):
            raise _error(response, problem)
        if response.status_code in _AWAY:
            raise Unavailable(
                f"{self._summary(response)} without a problem of Abeyance: a proxy cannot reach the "
                "API; try again later"
            )
        raise SettingsError(
            f"{self._summary(response)} without {expected}: set ABEYANCE_URL to the address of an "
            "Abeyance API"
        )

    def _summary(self, response: httpx.Response) -> str:
        request = response.request
        return f"{request.method} {self.url}: {request.url.path} returned {response.status_code}"


def _checked(url: str) -> str:
    """Return the url without its password, for messages. Raises SettingsError if it is invalid."""
    try:
        address = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise _no_address(url, str(error)) from error
    if address.scheme not in ("http", "https") or not address.host:
        raise _no_address(url, "http:// or the host is missing")
    if address.port is not None and not 0 < address.port <= _LAST_PORT:
        raise _no_address(url, f"{address.port} is not a port")
    return str(address.copy_with(userinfo=b"")).rstrip("/")


def _no_address(url: str, why: str) -> SettingsError:
    return SettingsError(f"ABEYANCE_URL={url!r} is not a valid URL ({why}): write http://host:port")


def _json(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError:
        return None


def _is_of_type(response: httpx.Response, media_type: str) -> bool:
    return str(response.headers.get("Content-Type", "")).startswith(media_type)


def _is_of_another_protocol(error: httpx.RequestError) -> bool:
    """Return whether a server answered, but not with HTTP, or not with TLS that this client accepts."""
    cause: BaseException | None = error
    while cause is not None:
        # A server that is stopping cuts off handshakes too.
        if isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLEOFError):
            return True
        cause = cause.__cause__ or cause.__context__
    # A response that was cut off raises the same class of error.
    return isinstance(error, httpx.RemoteProtocolError) and str(error).startswith("illegal ")


def _with_key(key: str | None) -> dict[str, str]:
    checked = checked_key(key, {"pointer": "/key"})
    return {} if checked is None else {"Idempotency-Key": checked}


def _error(response: httpx.Response, problem: Mapping[str, Any]) -> ApiProblem:
    code = problem["code"]
    detail = problem.get("detail") or problem.get("title") or response.reason_phrase
    if response.status_code == _UNAUTHENTICATED:
        has_token = "Authorization" in response.request.headers
        sent = "the token of ABEYANCE_TOKEN was sent" if has_token else "ABEYANCE_TOKEN is not set"
        if _SUBJECT_HEADER in response.request.headers:
            sent += "; leave out --as: it is for an API without authentication"
        detail = f"{detail} ({sent})"
    text = "\n".join([f"{code}: {detail}", *_faults(problem)])
    if response.status_code >= _DEFECT:
        after = response.headers.get("Retry-After", "")
        return ApiUnavailable(text, problem, float(after) if after.isdigit() else 2.0)
    return (ApiRefusal if code in _CODES else ApiProblem)(text, problem)


def _faults(problem: Mapping[str, Any]) -> list[str]:
    errors = problem.get("errors")
    if not isinstance(errors, list) or not errors:
        return []
    detail = str(problem.get("detail"))
    lines = [
        f"{error.get('pointer') or '/'}: {error.get('message')}"
        for error in errors
        # Skip errors that the detail repeats.
        if isinstance(error, Mapping) and str(error.get("message")) not in detail
    ]
    return [f"  {'; '.join(lines)}"] if lines else []


async def _events(response: httpx.Response) -> AsyncIterator[Mapping[str, Any] | None]:
    data: list[str] = []
    async for line in _lines(response):
        if line.startswith("data:"):
            data.append(line.removeprefix("data:").strip())
        elif line == ":":
            yield None
        elif not line and data:
            yield json.loads("\n".join(data))
            data = []


async def _lines(response: httpx.Response) -> AsyncIterator[str]:
    # `aiter_lines` also splits at Unicode line separators, which data may contain.
    rest = b""
    async for chunk in response.aiter_bytes():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r").decode()
