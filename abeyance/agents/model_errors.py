"""Why a request to a model failed, by what has to happen next.

ModelFailure (one of)
├── ModelDown       the model cannot be reached now: the same request is worth trying again
├── ModelUnusable   this worker cannot use the model: mend the worker, and the same request will do
└── ModelRefused    the model will never answer this request: trying it again changes nothing

The first two keep the run alive for as long as it takes: nothing in it is wrong. Whatever else is raised
in a request is nobody's but the author's (a scripted model's own bug, say), and passes through as it is.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TypeAlias

from abeyance.core.json import truncate
from abeyance.errors import AbeyanceError

if TYPE_CHECKING:
    from pydantic_ai.exceptions import ModelAPIError

_MOST_CHARS: Final = 800
_UNAUTHORISED: Final = frozenset({401, 402, 403, 404})
_PASSING: Final = frozenset({408, 409, 425, 429})
_TOO_LARGE: Final = 413
_SERVER_ERRORS: Final = 500

_VARIABLE: Final = re.compile(r"[Ss]et the `([A-Z][A-Z0-9_]+)`[^.]* environment variable")

_KEYS: Final = {
    "anthropic": "ANTHROPIC_API_KEY",
    "azure": "AZURE_OPENAI_API_KEY",
    "cohere": "CO_API_KEY",
    "deepseek": "DEEPSEEK_API_KEY",
    "google": "GOOGLE_API_KEY",
    "groq": "GROQ_API_KEY",
    "mistral": "MISTRAL_API_KEY",
    "openai": "OPENAI_API_KEY",
    "openai-chat": "OPENAI_API_KEY",
    "openai-responses": "OPENAI_API_KEY",
    "openrouter": "OPENROUTER_API_KEY",
    "xai": "XAI_API_KEY",
}
"""The environment variable that holds the key of each provider that people use most."""


class _Failure(AbeyanceError):
    def __init__(self, model: str, message: str) -> None:
        self.model = model
        super().__init__(message)


class ModelDown(_Failure):
    """The model cannot be reached now, or is too busy.

    `retry_after` is in how many seconds it is worth trying again, if the provider said so.
    """

    def __init__(self, model: str, message: str, *, retry_after: float | None = None) -> None:
        self.retry_after = retry_after
        super().__init__(model, message)


class ModelUnusable(_Failure):
    """This worker cannot use the model: a key, a package or the model's name is wrong or missing."""


class ModelRefused(_Failure):
    """The model will never answer this request: it is too long, forbidden or not understood."""


ModelFailure: TypeAlias = ModelDown | ModelUnusable | ModelRefused


def unprepared(model: str, error: Exception) -> ModelUnusable | None:
    """What an error says that was raised before anything was sent, when the model was looked up by name.

    None: it says nothing about the model.
    """
    from pydantic_ai.exceptions import UserError

    match error:
        case ImportError():
            return _unusable(
                model,
                f"a package that it needs is not installed: {_cut(error)}",
            )
        case UserError() | ValueError():
            missing = _VARIABLE.search(str(error))
            return _unusable(
                model, f"set {missing[1]} in its environment" if missing else _cut(error)
            )
        case _:
            return None


def failure_of(model: str, error: Exception) -> ModelFailure | None:
    """What an error says that was raised while a request was under way; None: nothing about the model.

    Args:
        model: The name of the model, for the text.
        error: What was raised.
    """
    import httpx
    import httpx2
    from pydantic_ai import exceptions as library

    match error:
        case ModelDown() | ModelUnusable() | ModelRefused():
            return error
        case library.FallbackExceptionGroup():
            return _of_all(model, error)
        case library.ModelAPIError():
            return _of_provider(model, error)
        case library.ContentFilterError():
            return _refused(
                model,
                f"its content filter stopped it: {_cut(error)}",
            )
        case library.UnexpectedModelBehavior():
            return _down(
                model,
                f"what it sent cannot be understood: {_cut(error)}",
            )
        case library.ConcurrencyLimitExceeded():
            return _down(model, _cut(error))
        case library.UserError() | NotImplementedError():
            return _refused(model, _cut(error))
        case httpx.TransportError() | httpx2.TransportError() | ConnectionError() | TimeoutError():
            return _down(model, _cut(error))
        case _:
            return None


def _of_provider(model: str, error: ModelAPIError) -> ModelFailure:
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
            return _unusable(
                model,
                f"the account's quota or credit is used up: {_cut(error)}",
            )
        case library.ModelAuthenticationError():
            return _unusable(model, f"its provider rejected {_key(model)}{_reply(error)}")
        case library.ModelNotFoundError():
            return _unusable(
                model,
                f"its provider does not know it: {_cut(error)}",
            )
        case library.ModelRequestRejectedError():
            return _refused(model, _cut(error))
        case _ if status is None or status in _PASSING or status >= _SERVER_ERRORS:
            return _down(model, _cut(error), retry_after=error.retry_after)
        case _ if status in _UNAUTHORISED:
            return _unusable(model, f"its provider rejected {_key(model)}{_reply(error)}")
        case _ if status == _TOO_LARGE:
            return _refused(
                model,
                f"the conversation is too large for it: {_cut(error)}",
            )
        case _:
            return _refused(model, _cut(error))


def _of_all(model: str, group: ExceptionGroup[Exception]) -> ModelFailure | None:
    # What one of several models may still answer is worth trying again.
    each = [failure_of(model, error) for error in group.exceptions]
    down = [failure for failure in each if isinstance(failure, ModelDown)]
    if down:
        waits = [failure.retry_after for failure in down if failure.retry_after is not None]
        return ModelDown(model, str(down[0]), retry_after=min(waits, default=None))
    return next(
        (
            failure
            for kind in (ModelUnusable, ModelRefused)
            for failure in each
            if type(failure) is kind
        ),
        None,
    )


def _down(model: str, said: str, *, retry_after: float | None = None) -> ModelDown:
    return ModelDown(
        model,
        f"the model {model!r} cannot be reached now: {said}. The run waits and tries again by itself.",
        retry_after=retry_after,
    )


def _unusable(model: str, said: str) -> ModelUnusable:
    return ModelUnusable(
        model,
        f"this worker cannot use the model {model!r}: {said.rstrip('.')}"
        f"{'' if said.endswith('?') else '.'} Fix this and restart the worker; the run then continues by"
        " itself.",
    )


def _refused(model: str, said: str) -> ModelRefused:
    return ModelRefused(
        model,
        f"the model {model!r} refused the request, and would refuse it again: {said}",
    )


def _key(model: str) -> str:
    provider = model.partition(":")[0].removeprefix("gateway/")
    name = _KEYS.get(provider)
    return f"the key in {name}" if name else f"the key of {provider!r}"


def _reply(error: ModelAPIError) -> str:
    """What the provider answered, in parentheses: its own sentence, where its answer has one."""
    match getattr(error, "body", None):
        case {"message": str(text)} | {"error": {"message": str(text)} | str(text)}:
            return f" (it says: {text[:_MOST_CHARS].strip()})"
        case _:
            return f" (it says: {_cut(error)})"


def _cut(error: Exception) -> str:
    return truncate(str(error).strip().rstrip(".") or type(error).__name__, _MOST_CHARS)
