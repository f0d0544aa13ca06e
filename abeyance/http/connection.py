"""Calls of the HTTP API: JSON in, JSON out, and problems (RFC 9457) as errors."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

import httpx

from abeyance.errors import AbeyanceError, Code, Refusal, SettingsError, Unavailable
from abeyance.util import is_loopback

_CONNECT_SECONDS: Final = 5.0
_READ_SECONDS: Final = 60.0
"""Longer than any answer is tried for, and than the longest poll that we ask for."""
_STREAM_SECONDS: Final = 45.0
"""The same for a stream, in which something comes every 15 seconds."""
_AWAY: Final = frozenset({502, 503, 504})
_UNAUTHENTICATED: Final = 401
_DEFECT: Final = 500
_LAST_PORT: Final = 65_535
_STREAM: Final = "text/event-stream"
_CODES: Final = frozenset(Code)
_STANDARD: Final = frozenset({"type", "title", "status", "detail", "code"})
_RENAMED: Final = {"interrupt_status": "status"}
"""Members of problems that have another name in the details of the refusal."""


class ApiProblem(AbeyanceError):
    """The API answered with a problem document, `problem`, whose code is none of Abeyance's own.

    As text it is the code, the detail, and one line of errors.
    """

    def __init__(self, text: str, problem: Mapping[str, Any]) -> None:
        self.problem = problem
        AbeyanceError.__init__(self, text)


class ApiRefusal(ApiProblem, Refusal):
    """The API refused a call, and nothing has changed."""

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
    """The API answers, but cannot do its work now. The call may be repeated."""

    def __init__(self, text: str, problem: Mapping[str, Any], retry_after: float) -> None:
        ApiProblem.__init__(self, text, problem)
        self.retry_after = retry_after


class Connection:
    """The API at `url`; `token` is the bearer token, where it wants one.

    Raises SettingsError for what is no address, and for a token that no header can hold.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        self._address = url.rstrip("/")
        self.url = _checked(url)
        if token and not (token.isascii() and token.isprintable()):
            # Not which: a token is a secret.
            raise SettingsError(
                "ABEYANCE_TOKEN holds a character that no token has, such as the end of a line"
            )
        self._http = httpx.AsyncClient(
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=httpx.Timeout(_READ_SECONDS, connect=_CONNECT_SECONDS),
            # A proxy of the environment knows nothing of this machine's loopback.
            trust_env=not is_loopback(httpx.URL(url).host),
        )

    async def close(self) -> None:
        """Close the connections that are open."""
        await self._http.aclose()

    async def get(self, path: str, **params: str | Sequence[str]) -> Any:
        """Read something, and return its JSON.

        Raises Refusal; Unavailable; ApiProblem; and SettingsError where something else than an API
        answers.
        """
        return await self._json("GET", path, params=params)

    async def post(
        self,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        key: str | None = None,
        **query: str,
    ) -> Any:
        """Change something; no body is an empty one. `key` is the idempotency key. Raises as `get`."""
        return (await self.post_for_status(path, body, key=key, **query))[1]

    async def post_for_status(
        self,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        key: str | None = None,
        **query: str,
    ) -> tuple[int, Any]:
        """The same, with the status of the answer."""
        headers = _with_key(key)
        return await self._call("POST", path, params=query, json=dict(body or {}), headers=headers)

    async def patch(self, path: str, body: Mapping[str, Any], *, key: str | None = None) -> Any:
        """Change a part of something. Raises as `get`."""
        return await self._json("PATCH", path, json=dict(body), headers=_with_key(key))

    async def delete(self, path: str, *, key: str | None = None) -> Any:
        """Delete something. Raises as `get`."""
        # The content type shows, as that of every change, that no foreign page has sent it.
        headers = {"Content-Type": "application/json", **_with_key(key)}
        return await self._json("DELETE", path, headers=headers)

    async def text(self, path: str) -> str:
        """Read a text. Raises as `get`."""
        with self._reached():
            response = await self._http.get(self._address + path, headers={"Accept": "text/plain"})
        if not response.headers.get("Content-Type", "").startswith("text/plain"):
            self._check(response, _json(response))
            raise self._stranger(response, "a text")
        return response.text

    @asynccontextmanager
    async def stream(
        self, path: str, last_id: str | None
    ) -> AsyncIterator[AsyncIterator[Mapping[str, Any] | None]]:
        """Server-sent events, from after the one with the id `last_id`; None is from the first.

        Among them is None for each sign of life without an event. Raises as `get`; Unavailable also when
        the stream breaks off while it is read.
        """
        headers = {"Accept": _STREAM, **({"Last-Event-ID": last_id} if last_id else {})}
        timeout = httpx.Timeout(_STREAM_SECONDS, connect=_CONNECT_SECONDS)
        url = self._address + path
        with self._reached():
            async with self._http.stream("GET", url, headers=headers, timeout=timeout) as response:
                if not response.headers.get("Content-Type", "").startswith(_STREAM):
                    await response.aread()
                    self._check(response, _json(response))
                    raise self._stranger(response, "a stream of events")
                yield _events(response)

    async def _json(self, method: str, path: str, **options: Any) -> Any:
        return (await self._call(method, path, **options))[1]

    async def _call(self, method: str, path: str, **options: Any) -> tuple[int, Any]:
        with self._reached():
            response = await self._http.request(method, self._address + path, **options)
        body = _json(response)
        self._check(response, body)
        if not response.is_success or body is None:
            raise self._stranger(response, "JSON")
        return response.status_code, body

    @contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except UnicodeEncodeError as error:
            raise SettingsError(
                f"{error.object[:100]!r} cannot be sent: it holds what is no letter ({error.reason})"
            ) from error
        except httpx.RequestError as error:
            raise Unavailable(
                f"no API answers at {self.url} ({error or type(error).__name__}): start one with "
                "`abeyance dev` or `abeyance api`, or set ABEYANCE_URL to where one is"
            ) from error

    def _check(self, response: httpx.Response, body: Any) -> None:
        """Raise what the API says in place of an answer."""
        if response.is_error and isinstance(body, Mapping):
            raise _error(response, body)
        if response.status_code in _AWAY:
            raise Unavailable(
                f"{self._answer(response)} without JSON: something before the API cannot reach it; try "
                "again later"
            )

    def _stranger(self, response: httpx.Response, wanted: str) -> SettingsError:
        return SettingsError(
            f"{self._answer(response)} without {wanted}: is ABEYANCE_URL the address of an Abeyance API?"
        )

    def _answer(self, response: httpx.Response) -> str:
        request = response.request
        return f"{request.method} {self.url}: {request.url.path} answered {response.status_code}"


def _checked(url: str) -> str:
    """The address as it may be shown: without a password. Raises SettingsError for what is none."""
    try:
        found = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise _no_address(url, str(error)) from error
    if found.scheme not in ("http", "https") or not found.host:
        raise _no_address(url, "that has no http:// or no host")
    if found.port is not None and not 0 < found.port <= _LAST_PORT:
        raise _no_address(url, f"there is no port {found.port}")
    return str(found.copy_with(userinfo=b"")).rstrip("/")


def _no_address(url: str, why: str) -> SettingsError:
    return SettingsError(
        f"ABEYANCE_URL={url!r} is not an address: write it as http://host:port ({why})"
    )


def _json(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError:
        return None


def _with_key(key: str | None) -> dict[str, str]:
    return {} if key is None else {"Idempotency-Key": key}


def _error(response: httpx.Response, problem: Mapping[str, Any]) -> ApiProblem:
    code = problem.get("code") or f"http_{response.status_code}"
    detail = problem.get("detail") or problem.get("title") or response.reason_phrase
    if response.status_code == _UNAUTHENTICATED:
        has_token = "Authorization" in response.request.headers
        sent = "the one in ABEYANCE_TOKEN was sent" if has_token else "ABEYANCE_TOKEN is not set"
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
    told = [
        f"{error.get('pointer') or '/'}: {error.get('message')}"
        for error in errors
        # The detail may have said it already.
        if isinstance(error, Mapping) and str(error.get("message")) not in detail
    ]
    return [f"  {'; '.join(told)}"] if told else []


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
    # Not `aiter_lines`: to it a line also ends where only a text would, and data may hold such letters.
    rest = b""
    async for chunk in response.aiter_bytes():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r").decode()
