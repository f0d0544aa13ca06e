"""A question that is asked when it is awaited, and that is nobody's answer until then."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, NoReturn, TypeVar

from abeyance.errors import Fatal

T_co = TypeVar("T_co", covariant=True)


class Promise(Coroutine[Any, Any, T_co]):
    """What `ctx.interrupt` returns: a coroutine that is neither true nor false.

    A coroutine is true, so `if ctx.interrupt(...):` would pass the gate that it was to be.
    """

    def __init__(self, told: str, ask: Callable[[], Coroutine[Any, Any, T_co]]) -> None:
        self._told = told
        self._ask = ask
        self._asking: Coroutine[Any, Any, T_co] | None = None

    def refuse(self) -> NoReturn:
        """Raise Fatal: it was not awaited."""
        message = (
            f"{self._told} is asked without `await`, so nobody has been asked: write `await "
            "ctx.interrupt(...)`, or in a plain function `raise Interrupt(...)`"
        )
        raise Fatal(message)

    def __bool__(self) -> bool:  # noqa: PLE0304 that it returns nothing is the point
        self.refuse()

    def __await__(self) -> Generator[Any, Any, T_co]:
        return self._begun().__await__()

    def send(self, value: Any) -> Any:
        """Go on, as the event loop makes it."""
        return self._begun().send(value)

    def throw(
        self,
        typ: Any,
        val: BaseException | object = None,
        tb: TracebackType | None = None,  # noqa: ARG002 a coroutine takes it, and it says nothing new
    ) -> Any:
        """Go on with an error, as the event loop makes it."""
        return self._begun().throw(val if isinstance(val, BaseException) else typ)

    def close(self) -> None:
        """Ask nobody any more."""
        self._begun().close()

    def _begun(self) -> Coroutine[Any, Any, T_co]:
        # Not before it is awaited: code may be left for another question with this one in its hands.
        if self._asking is None:
            self._asking = self._ask()
        return self._asking
