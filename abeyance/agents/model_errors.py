"""Failures of a model request, classified by what has to happen next.

ModelFailure (one of)
├── ModelDown       the model is unreachable now: retry the same request
├── ModelUnusable   this worker cannot use the model: fix the worker, then retry the same request
└── ModelRefused    the model will never answer this request: do not retry it

The first two keep the run alive without a limit. Any other exception (a bug of a scripted model, say)
is the author's and passes through unchanged.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TypeAlias

from abeyance.core.text import truncate
from abeyance.errors import AbeyanceError

if TYPE_CHECKING:
    from pydantic_ai.exceptions import ModelAPIError

_MAX_CHARS: Final = 800
_UNUSABLE_STATUSES: Final = frozenset({401, 402, 403, 404})
_TRANSIENT_STATUSES: Final = frozenset({408, 409, 425, 429})
_TOO_LARGE: Final = 413
_FIRST_SERVER_ERROR: Final = 500

_VARIABLE: Final = re.compile(r"[Ss]et the `([A-Z][A-Z0-9_]+)`[^.]* environment variable")

_NO_KEY: Final = re.compile(
    "Missing credentials"  # openai
    "|Could not resolve authentication method"  # anthropic
    "|No API key was provided"  # google-genai
    "|Unable to locate credentials"  # botocore
    "|default credentials were not found"  # google-auth
)
"""The messages of providers' clients about a missing key. Their error types have nothing in common."""


class _Failure(AbeyanceError):
    """`retry_after` is the delay in seconds that the provider asks for, if any."""

    def __init__(self, model: str, message: str, *, retry_after: float | None = None) -> None:
        self.model = model
        self.retry_after = retry_after
        super().__init__(message)


class ModelDown(_Failure):
    """The model cannot be reached now, or is too busy."""


class ModelUnusable(_Failure):
    """This worker cannot use the model: a key, a package or the model name is wrong or missing."""


class ModelRefused(_Failure):
    """The model will never answer this request: it is too long, forbidden or invalid."""


ModelFailure: TypeAlias = ModelDown | ModelUnusable | ModelRefused


def setup_failure(model: str, error: Exception) -> ModelUnusable | None:
    """Classify an error raised while a model was looked up by name; None if it has another cause."""
    from pydantic_ai.exceptions import UserError

    match error:
        case ImportError():
            return _unusable(model, f"a package that it needs is not installed: {_cut(error)}")
        case UserError() | ValueError():
            return _not_set_up(model, error)
        case _:
            return None


def request_failure(model: str, error: Exception) -> ModelFailure | None:
    """Classify an error raised during a request to a model; None if it has another cause."""
    import httpx
    import httpx2
    from pydantic_ai import exceptions as library

    match error:
        case ModelDown() | ModelUnusable() | ModelRefused():
            return error
        case library.FallbackExceptionGroup():
            return _fallback_failure(model, error)
        case library.ModelAPIError():
            return _provider_failure(model, error)
        case library.ContentFilterError():
            return _refused(model, f"its content filter stopped it: {_cut(error)}")
        case library.UnexpectedModelBehavior():
            return _down(model, f"its response cannot be read: {_cut(error)}")
        case library.ConcurrencyLimitExceeded():
            return _down(model, _cut(error))
        # The library raises NotImplementedError for media that a provider does not take.
        case library.UserError() | NotImplementedError():
            return _refused(model, _cut(error))
        case httpx.TransportError() | httpx2.TransportError() | ConnectionError() | TimeoutError():
            return _down(model, _cut(error))
        case _:
            return None


def foreign_failure(model: str, error: Exception) -> ModelFailure | None:
    """Classify an error of another framework's model; None if it has another cause.

    The clients of the providers agree on `status_code` (Google: `code`), and on the class name
    `APIConnectionError`, from which LangChain derives its own. Their messages reveal a missing key.
    """
    if isinstance(error, AbeyanceError):
        return request_failure(model, error)
    match getattr(error, "status_code", getattr(error, "code", None)):
        case int() as status:
            return _by_status(model, error, status)
        case _ if any(each.__name__ == "APIConnectionError" for each in type(error).__mro__):
            return _down(model, _cut(error))
        case _ if _NO_KEY.search(str(error)):
            return _not_set_up(model, error)
        case _:
            return request_failure(model, error)


def _not_set_up(model: str, error: Exception) -> ModelUnusable:
    missing = _VARIABLE.search(str(error))
    return _unusable(model, f"set {missing[1]} in its environment" if missing else _cut(error))


def _by_status(model: str, error: Exception, status: int) -> ModelFailure:
    if status in _TRANSIENT_STATUSES or status >= _FIRST_SERVER_ERROR:
        return _down(model, _cut(error))
    if status in _UNUSABLE_STATUSES:
        return _unusable(model, f"its provider rejected the request: {_cut(error)}")
    return _refused(model, _cut(error))


def _provider_failure(model: str, error: ModelAPIError) -> ModelFailure:
    from pydantic_ai import exceptions as library

    status = getattr(error, "status_code", None)
    match error:
        case library.ModelContextWindowExceededError():
            return _refused(
                model,
                "the conversation is longer than the model can read. Give the agent a model with a"
                f" larger context, or less to read: {_cut(error)}",
            )
        case library.ModelQuotaExceededError():
            return _unusable(model, f"the account's quota or credit is used up: {_cut(error)}")
        case library.ModelAuthenticationError():
            return _unusable(model, f"its provider rejected its key{_reply(error)}")
        case library.ModelNotFoundError():
            return _unusable(model, f"its provider has no such model: {_cut(error)}")
        case library.ModelRequestRejectedError():
            return _refused(model, _cut(error))
        case _ if status is None or status in _TRANSIENT_STATUSES or status >= _FIRST_SERVER_ERROR:
            return _down(model, _cut(error), retry_after=error.retry_after)
        case _ if status in _UNUSABLE_STATUSES:
            return _unusable(model, f"its provider rejected its key{_reply(error)}")
        case _ if status == _TOO_LARGE:
            return _refused(model, f"the conversation is too large for it: {_cut(error)}")
        case _:
            return _refused(model, _cut(error))


def _fallback_failure(model: str, group: ExceptionGroup[Exception]) -> ModelFailure | None:
    # As long as one of the models may answer later, the request can be retried.
    failures = [request_failure(model, error) for error in group.exceptions]
    unreachable = [failure for failure in failures if isinstance(failure, ModelDown)]
    if unreachable:
        delays = [failure.retry_after for failure in unreachable if failure.retry_after is not None]
        return ModelDown(model, str(unreachable[0]), retry_after=min(delays, default=None))
    return next(
        (
            failure
            for kind in (ModelUnusable, ModelRefused)
            for failure in failures
            if type(failure) is kind
        ),
        None,
    )


def _down(model: str, reason: str, *, retry_after: float | None = None) -> ModelDown:
    return ModelDown(
        model,
        f"the model {model!r} cannot be reached now: {reason}. The run waits and tries again by itself.",
        retry_after=retry_after,
    )


def _unusable(model: str, reason: str) -> ModelUnusable:
    return ModelUnusable(
        model,
        f"this worker cannot use the model {model!r}: {reason.rstrip('.')}"
        f"{'' if reason.endswith('?') else '.'} Fix this and restart the worker; the run then continues"
        " by itself.",
    )


def _refused(model: str, reason: str) -> ModelRefused:
    return ModelRefused(
        model, f"the model {model!r} refused the request, and would refuse it again: {reason}"
    )


def _reply(error: ModelAPIError) -> str:
    """Return the provider's own message, in parentheses."""
    match getattr(error, "body", None):
        case {"message": str(text)} | {"error": {"message": str(text)} | str(text)}:
            return f" (it says: {truncate(text.strip(), _MAX_CHARS)})"
        case _:
            return f" (it says: {_cut(error)})"


def _cut(error: Exception) -> str:
    return truncate(str(error).strip().rstrip(".") or type(error).__name__, _MAX_CHARS)
