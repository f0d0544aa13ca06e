"""Calls of the HTTP API, as the command line makes them."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

import httpx

from abeyance.errors import AbeyanceError, SettingsError, Unavailable

_CONNECT_SECONDS: Final = 5.0
_READ_SECONDS: Final = 60.0
"""Longer than any answer is tried for, and than the longest poll that we ask for."""
_AWAY: Final = frozenset({502, 503, 504})


class ProblemResponse(AbeyanceError):
    """The API refused a call. `problem` is what it said, `text` the same as it was sent."""

    def __init__(self, response: httpx.Response, problem: Mapping[str, Any]) -> None:
        self.problem = problem
        self.text = response.text
        code = problem.get("code") or f"http_{response.status_code}"
        detail = problem.get("detail") or problem.get("title") or response.reason_phrase
        super().__init__("\n".join([f"{code}: {detail}", *_faults(problem)]))


class AwayResponse(ProblemResponse, Unavailable):
    """The API answers, but cannot reach what it needs. The call may be repeated."""


class Remote:
    """The API at `url`; `token` is the bearer token, where it wants one."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self.url = url.rstrip("/")
        self._http = httpx.AsyncClient(
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=httpx.Timeout(_READ_SECONDS, connect=_CONNECT_SECONDS),
            # A proxy of the environment knows nothing of this machine's loopback.
            trust_env=not _is_loopback(url),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._http.aclose()

    async def get(self, path: str, **params: str) -> httpx.Response:
        """Read something. Raises ProblemResponse, Unavailable, or SettingsError for a bad address."""
        return await self._call("GET", path, params=params)

    async def post(self, path: str, body: Mapping[str, Any] | None = None) -> httpx.Response:
        """Change something; no body is an empty one. Raises what `get` raises."""
        return await self._call("POST", path, json=dict(body or {}))

    async def _call(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            response = await self._http.request(method, self.url + path, **options)
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise SettingsError(
                f"ABEYANCE_URL={self.url!r} is not an address: write it as http://host:port ({error})"
            ) from error
        except httpx.TransportError as error:
            raise Unavailable(
                f"no API answers at {self.url} ({error or type(error).__name__}): start one with "
                "`abeyance dev` or `abeyance api`, or set ABEYANCE_URL to where one is"
            ) from error
        body = _json(response)
        if response.is_success and body is not None:
            return response
        if response.is_error and isinstance(body, Mapping):
            is_away = response.status_code in _AWAY
            raise (AwayResponse if is_away else ProblemResponse)(response, body)
        text = f"{method} {self.url}{path} answered {response.status_code} without JSON"
        if response.status_code in _AWAY:
            raise Unavailable(f"{text}: something before the API cannot reach it; try again later")
        raise SettingsError(f"{text}: is ABEYANCE_URL the address of an Abeyance API?")


def _json(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError:
        return None


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


def _is_loopback(url: str) -> bool:
    try:
        host = httpx.URL(url).host
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except (httpx.InvalidURL, ValueError):
        return False
