"""Sign-in: who the caller is (`GET /me`), and sessions of people who use a browser.

Somebody signs in with a token, or at the OpenID provider of the settings, and gets a cookie. A call with
the cookie has the principal of that token. The page has no data of runs.
"""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime
from pathlib import Path
from string import Template
from typing import Annotated, Final, Literal, TypeAlias
from urllib.parse import quote

from fastapi import APIRouter, Body, Query, Request, Response
from pydantic import BaseModel, Field
from starlette.responses import HTMLResponse, RedirectResponse

from abeyance import views, wire
from abeyance.api import examples, openapi, pages
from abeyance.api.auth import LOCAL, Credentials, CredentialsDep
from abeyance.api.dependencies import DECLARED_PARAMETERS, KNOWN_PARAMETERS, Backend, BackendDep
from abeyance.api.problems import PROBLEMS
from abeyance.api.sessions import CALLBACK, SIGN_IN
from abeyance.errors import Refusal, Unavailable
from abeyance.util import invalid

router = APIRouter(tags=["sign-in"])

_FOLDER: Final = Path(__file__).parent
_PAGE: Final = Template((_FOLDER / "page.html").read_text(encoding="utf-8"))
_PROVIDER: Final = f"{SIGN_IN}/oidc"
_HOME: Final = "/inbox"
_OWN_PATH: Final = re.compile(r"/(?![/\\])[!-\[\]-~]{0,1999}")
"""A path of this service. Browsers read `//host` and `/\\host` as another host, and drop white space."""
_MAX_TOKEN: Final = 16_384

Next: TypeAlias = Annotated[
    str,
    Query(
        description="Where the page leads: a path of this service. Anything else means the inbox.",
        examples=["/inbox"],
    ),
]


class SignIn(wire.Request):
    """The token of somebody who signs in, from the tokens file or from the issuer."""

    token: str = Field(min_length=1, max_length=_MAX_TOKEN, pattern="^[\\s -\u00ff]*$")


class SignedOut(BaseModel):
    """The caller has no session."""

    signed_out: Literal[True] = Field(default=True, examples=[True])


class Me(BaseModel):
    """The caller, as the service knows them."""

    subject: views.Person
    capabilities: list[str] = Field(
        description="`*` includes every capability.", examples=[["runs:read", "runs:respond"]]
    )
    groups: list[str] = Field(examples=[["finance"]])
    reads: dict[str, list[str]] = Field(
        description="The caller sees only runs whose labels each have one of these values. Without "
        "labels: all runs.",
        examples=[{"team": ["finance"]}],
    )
    authenticated_by: Literal["nothing", "token", "session"] = Field(
        description="`nothing`: the service requires no authentication. `session`: the caller has signed "
        "in.",
        examples=["token"],
    )
    expires_at: datetime | None = Field(
        description="When the token or the session expires; null if it does not."
    )

    @classmethod
    def of(cls, credentials: Credentials, backend: Backend) -> Me:
        """Return the identity of a caller."""
        principal, until = credentials.principal, credentials.expires_at
        by: Literal["token", "session"] = "token" if credentials.session is None else "session"
        return cls(
            subject=principal.subject,
            capabilities=[*principal.capabilities],
            groups=[*principal.groups],
            reads={name: [*values] for name, values in credentials.reads.labels},
            authenticated_by=by if backend.tokens.are_required else "nothing",
            expires_at=None if until is None else datetime.fromtimestamp(until, UTC),
        )


@router.get("/me", dependencies=[KNOWN_PARAMETERS], response_description="The caller.")
async def read_me(credentials: CredentialsDep, backend: BackendDep) -> Me:
    """Retrieve the caller: the subject, its capabilities, its groups, and the runs that it may see. Any
    valid token or session is enough.
    """
    return Me.of(credentials, backend)


@router.post(
    SIGN_IN,
    dependencies=[DECLARED_PARAMETERS],
    response_description="The caller, who has a session from now on.",
)
async def sign_in(
    body: Annotated[SignIn, Body(examples=[examples.SIGN_IN])],
    request: Request,
    response: Response,
    backend: BackendDep,
) -> Me:
    """Sign in with a token. The response sets a cookie, and calls with the cookie need no token.

    The session lasts eight hours at most, and no longer than the token. It has the capabilities
    of the token, and ends when the token is revoked.
    """
    if not backend.tokens.are_required:
        message = "is not needed: this service has no authentication"
        raise invalid([{"pointer": "/token", "message": message}])
    credentials = await backend.tokens.verify(body.token.strip())
    return Me.of(_begin(credentials, request, response, backend), backend)


@router.post(
    "/signout",
    dependencies=[DECLARED_PARAMETERS],
    response_description="The caller has no session.",
)
async def sign_out(request: Request, response: Response, backend: BackendDep) -> SignedOut:
    """Sign out: end the session of the caller's cookie, and have the browser forget it."""
    backend.sessions.end(request, response)
    return SignedOut()


@router.get(
    SIGN_IN,
    response_class=HTMLResponse,
    response_description="The page.",
    responses=openapi.shown("<!doctype html> ...", "text/html"),
)
async def page(backend: BackendDep, next: Next = _HOME) -> Response:  # noqa: A002
    """Serve the page on which people sign in and out. It has no data and requires no capability."""
    return _page(backend, own_path(next))


pages.serve(router, f"{SIGN_IN}/signin.js", (_FOLDER / "signin.js").read_text(encoding="utf-8"))
pages.serve(router, f"{SIGN_IN}/signin.css", pages.with_common_style(_FOLDER / "signin.css"))


@router.get(_PROVIDER, include_in_schema=False)
async def leave(
    request: Request,
    backend: BackendDep,
    next: Next = _HOME,  # noqa: A002
) -> Response:
    """Redirect to the OpenID provider, from where the browser comes back to the callback."""
    next_path = own_path(next)
    if backend.oidc is None:
        return _page(
            backend,
            next_path,
            problem="This service has no identity provider: sign in with a token.",
            status=404,
        )
    try:
        address, pending = await backend.oidc.begin(_callback(request, backend), next_path)
    except Unavailable as error:
        return _page(backend, next_path, problem=str(error), status=503)
    response = RedirectResponse(address, status_code=303, headers=pages.HEADERS)
    backend.sessions.leave(response, pending, is_https=_is_https(request, backend))
    return response


@router.get(CALLBACK, include_in_schema=False)
async def come_back(
    *,
    request: Request,
    backend: BackendDep,
    state: str = "",
    code: str = "",
    iss: str | None = None,
    error: str = "",
) -> Response:
    """Begin the session of somebody who comes back from the provider, and redirect to their page."""
    sessions, pending = backend.sessions, backend.sessions.returned(request)
    if backend.oidc is None or pending is None or not state or pending.state != state:
        response = _page(
            backend,
            _HOME,
            problem="You are not signed in: this sign-in was not begun in this browser, or took longer "
            "than ten minutes. Sign in again.",
            status=400,
        )
        sessions.forget(response)
        return response
    try:
        credentials = await backend.oidc.finish(
            pending,
            code=code,
            error=error,
            issuer=iss,
            redirect_uri=_callback(request, backend),
        )
        response = RedirectResponse(pending.next, status_code=303, headers=pages.HEADERS)
        _begin(credentials, request, response, backend)
    except Refusal as refusal:
        status, _ = PROBLEMS[refusal.code]
        response = _page(backend, pending.next, problem=refusal.message, status=status)
    except Unavailable as away:
        response = _page(backend, pending.next, problem=str(away), status=503)
    sessions.forget(response)
    return response


def own_path(path: str) -> str:
    """Return a path of this service, or the inbox for anything that may lead elsewhere."""
    return path if _OWN_PATH.fullmatch(path) else _HOME


def _begin(
    credentials: Credentials, request: Request, response: Response, backend: Backend
) -> Credentials:
    sessions, tokens = backend.sessions, backend.tokens
    # End the old session when a person signs in again: nobody could end it later.
    sessions.end(request, response)
    session = tokens.session_of(credentials, sessions.until(credentials.expires_at))
    sessions.begin(response, session, is_https=_is_https(request, backend))
    return tokens.of_session(session)


def _page(
    backend: Backend, next_path: str, *, problem: str | None = None, status: int = 200
) -> Response:
    forms = "" if backend.tokens.accept_tokens else " hidden"
    provider = " hidden"
    if backend.oidc is not None:
        provider = f' href="{_PROVIDER}?next={quote(next_path, safe="")}"'
    content = _PAGE.substitute(
        next=html.escape(next_path),
        problem="" if problem is None else html.escape(problem),
        no_problem=" hidden" if problem is None else "",
        provider=provider,
        host="" if backend.oidc is None else html.escape(backend.oidc.host),
        token=forms,
        nobody="" if not backend.tokens.are_required else " hidden",
        local=LOCAL,
    )
    return pages.sent(content, "html", status)


def _base(request: Request, backend: Backend) -> str:
    # The guard has checked the host.
    return backend.settings.public_url or f"{request.url.scheme}://{request.headers['host']}"


def _callback(request: Request, backend: Backend) -> str:
    return f"{_base(request, backend)}{CALLBACK}"


def _is_https(request: Request, backend: Backend) -> bool:
    # A proxy in front of this service may speak https: the `Origin` of a browser's form tells so.
    origin = request.headers.get("origin", "")
    return _base(request, backend).startswith("https:") or origin.startswith("https:")
