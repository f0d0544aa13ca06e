"""`Backoff`, and the options `retries`, `backoff`, `retry_for` and `retry_on`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Final, TypeAlias

from pydantic import BeforeValidator, ConfigDict, Field
from pydantic.dataclasses import dataclass

from abeyance.core.bounds import RetryPolicy
from abeyance.duration import Duration, positive_seconds, seconds

_Pause: TypeAlias = Annotated[
    Duration, BeforeValidator(positive_seconds, json_schema_input_type=float | str)
]


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Backoff:
    """The pauses between attempts: 1 s, 2 s, 4 s, and so on up to 1 min, unless given otherwise.

    `first` is the pause before the first retry, each further one is `factor` times as long, and none is
    longer than `most`.
    """

    first: _Pause = Field(default=1.0, description="the pause before the first retry")
    factor: float = Field(
        default=2.0,
        ge=1,
        strict=True,
        allow_inf_nan=False,
        description="how many times as long each further pause is",
    )
    most: _Pause = Field(default=60.0, description="the longest pause")


DEFAULT_BACKOFF: Final = Backoff()

RetryOn: TypeAlias = type[BaseException] | Sequence[type[BaseException]]
"""The exceptions after which code is tried again."""

ANY_ERROR: Final = (BaseException,)


def retry_policy(
    note: Callable[[str], None],
    label: str,
    *,
    retries: object,
    backoff: object,
    retry_for: object,
    default: int,
    prefix: str = "",
) -> RetryPolicy:
    """Return the policy, and `note` the faults of its options, whose names begin with `prefix`.

    `default` is the number of retries if neither `retries` nor `retry_for` is given.
    """
    start = f"{label}, {prefix}"
    faults: list[str] = []
    if retries is not None and not (isinstance(retries, int) and not isinstance(retries, bool)):
        faults.append(f"{start}retries={retries!r} is invalid: use a whole number, such as 0 or 3")
    elif isinstance(retries, int) and retries < 0:
        faults.append(f"{start}retries={retries} is negative: the minimum is 0")
    if not isinstance(backoff, Backoff):
        faults.append(f"{start}backoff={backoff!r} is invalid: use Backoff(first=, factor=, most=)")
        backoff = DEFAULT_BACKOFF
    first, most, within = seconds(backoff.first), seconds(backoff.most), None
    if retry_for is not None:
        within = _duration(retry_for, f"{start}retry_for", faults)
    if not faults:
        faults += _misfits(start, first, most, within)
    for fault in faults:
        note(fault)
    if faults:
        return RetryPolicy(retries=default)
    assert retries is None or isinstance(retries, int)  # noqa: S101 anything else is a fault
    if retries is None and within is None:
        retries = default
    return RetryPolicy(
        retries=retries, first=first, factor=backoff.factor, most=most, retry_for=within
    )


def exceptions(
    note: Callable[[str], None], label: str, value: object, prefix: str = ""
) -> tuple[type[BaseException], ...]:
    """Return the classes of `retry_on`, and `note` everything that is not an exception class."""
    given = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
    classes = tuple(
        each for each in given if isinstance(each, type) and issubclass(each, BaseException)
    )
    for each in given:
        if each not in classes:
            note(
                f"{label}, {prefix}retry_on: {each!r} is not an exception: use classes, such as "
                "(ConnectionError,)"
            )
    if not given:
        note(f"{label}, {prefix}retry_on is empty: name exceptions, or write retries=0")
    return classes


def _duration(value: object, label: str, faults: list[str]) -> float:
    try:
        length = seconds(value)
    except ValueError as error:
        faults.append(f"{label}: {error}")
        return 1.0
    if not 0 < length < math.inf:
        faults.append(f"{label} is {length:g} s: it must be positive and finite")
    return length


def _misfits(start: str, first: float, most: float, within: float | None) -> Iterator[str]:
    if most < first:
        yield f"{start}backoff has most={most:g} s, which is shorter than first={first:g} s"
    if within is not None and within < first:
        yield (
            f"{start}retry_for of {within:g} s is over before the first retry, which follows after "
            f"{first:g} s: make it longer, or backoff.first shorter"
        )
