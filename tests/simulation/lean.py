"""What the SDK and Python do for each value and each callback, with less work, during a schedule.

The same comes out. What is left out looks for what our code has not (types with a form of their own for
the wire, names of tasks that nobody reads), or finds out again for each value what its type tells.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import Context, copy_context
from json import encoder
from typing import Any, Final
from unittest import mock

from pydantic_core import to_json
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.contrib.pydantic import PydanticJSONPlainPayloadConverter
from temporalio.converter import CompositePayloadConverter, EncodingPayloadConverter
from temporalio.converter import _payload_converter as conversion
from temporalio.worker import UnsandboxedWorkflowRunner, WorkflowInstance, WorkflowInstanceDetails
from temporalio.worker._workflow_instance import _WorkflowInstanceImpl

from abeyance.core.spec import GraphSpec
from abeyance.storage.converter import PayloadConverter

_JSON: Final = b"json/plain"


@contextmanager
def lean() -> Iterator[None]:
    """Let them do so meanwhile."""
    with (
        mock.patch.object(_Wrapper, "to_payloads", _to_payloads),
        mock.patch.object(_Wrapper, "from_payloads", _from_payloads),
        mock.patch.object(dataclasses, "_asdict_inner", _asdict),
        mock.patch.object(json.JSONEncoder, "iterencode", _iterencode),
        mock.patch.object(_ALL_TASKS, "add", _not_kept, create=True),
    ):
        yield


def once(owner: object, name: str, make: Callable[[], Any]) -> Any:
    """Return what was made for an object when it was needed first. The object keeps it."""
    known = vars(owner)
    kept = f"_simulated_{name}"
    if kept not in known:
        known[kept] = make()
    return known[kept]


# Payloads


class _ByType(CompositePayloadConverter):
    """Asks no converter for a value of whose type another one has taken a value before."""

    taken: Final[dict[type, EncodingPayloadConverter]] = {}

    def to_payloads(self, values: Sequence[Any]) -> list[Payload]:
        return [self._payload(value) for value in values]

    def _payload(self, value: Any) -> Payload:
        if isinstance(value, RawValue):
            return value.payload
        kind = type(value)
        if (converter := self.taken.get(kind)) is None:
            (payload,) = super().to_payloads([value])
            self.taken[kind] = self.converters[payload.metadata["encoding"]]
            return payload
        if not isinstance(converter, PydanticJSONPlainPayloadConverter):
            taken = converter.to_payload(value)
            assert taken is not None
            return taken
        # A graph goes along with every continue-as-new, and never changes.
        data = once(value, "json", lambda: to_json(value)) if kind is GraphSpec else to_json(value)
        payload = Payload(data=data)
        payload.metadata["encoding"] = _JSON
        return payload


class LeanPayloadConverter(PayloadConverter, _ByType):
    """Our own converter, which asks the SDK's for what it does not do itself: here this one."""


def _to_payloads(self: Any, values: Sequence[Any]) -> Any:
    if any(_has_a_form(type(value)) for value in values):
        return _usual_to_payloads(self, values)
    return self._inner_payload_converter.to_payloads(values)


def _from_payloads(self: Any, payloads: Sequence[Payload], type_hints: Any = None) -> Any:
    if type_hints and any(map(_has_a_form, type_hints)):
        return _usual_from_payloads(self, payloads, type_hints)
    return self._inner_payload_converter.from_payloads(payloads, type_hints)


def _has_a_form(kind: Any) -> bool:
    try:
        return _form_of(kind) is not None
    except TypeError:
        # It has no hash, so nothing is known of it.
        return True


_form_of: Final = functools.lru_cache(maxsize=4096)(conversion._get_transfer_type_converter)
_Wrapper: Final[Any] = conversion._TemporalTransferTypePayloadConverter
_usual_to_payloads: Final = _Wrapper.to_payloads
_usual_from_payloads: Final = _Wrapper.from_payloads


# Instances of workflows


class _Callback:
    """A callback of a workflow's loop, less all that asyncio's own keeps of one for debugging."""

    __slots__ = ("_args", "_callback", "_cancelled", "_context", "_loop")

    def __init__(
        self, loop: Any, callback: Callable[..., Any], args: tuple[Any, ...], context: Context
    ) -> None:
        self._loop, self._callback, self._args, self._context = loop, callback, args, context
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True

    def cancelled(self) -> bool:
        return self._cancelled

    def _run(self) -> None:
        if self._cancelled:
            return
        try:
            self._context.run(self._callback, *self._args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 as asyncio does it
            about = {"message": f"Exception in {self._callback}", "exception": error}
            self._loop.call_exception_handler(about)


class _Instance(_WorkflowInstanceImpl):
    """The SDK's instance of a workflow, with lighter callbacks, and tasks without names."""

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> _Callback:
        if self._read_only:
            self._assert_not_read_only("schedule task", allow_during_delete=True)
        call = _Callback(self, callback, args, copy_context() if context is None else context)
        self._ready.append(call)  # type: ignore[arg-type]
        return call

    def _register_task(self, task: Any, *, name: str | None) -> None:
        del name
        if self._read_only:
            self._assert_not_read_only("create task")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.remove)
        task._log_destroy_pending = False


class LeanRunner(UnsandboxedWorkflowRunner):
    """Makes such instances."""

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        return _Instance(det)  # type: ignore[abstract]


_ALL_TASKS: Final[Any] = asyncio.tasks._all_tasks  # type: ignore[attr-defined]


def _not_kept(task: object) -> None:
    """Nobody asks asyncio for all tasks: each loop knows its own."""


# What Python does


def _asdict(value: Any, factory: Any) -> Any:
    """As later versions of Python have it: what cannot change is not copied."""
    kind: Any = type(value)
    if kind in _PLAIN:
        return value
    if factory is dict and (names := _names(kind)):
        return {name: _asdict(getattr(value, name), dict) for name in names}
    return _usual_asdict(value, factory)


@functools.cache
def _names(kind: Any) -> tuple[str, ...]:
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    return tuple(each.name for each in fields)


_usual_asdict: Final = dataclasses._asdict_inner  # type: ignore[attr-defined]
_PLAIN: Final = frozenset({type(None), bool, int, float, str, bytes})


def _iterencode(self: Any, value: Any, _one_shot: bool = False) -> Any:
    """What writes JSON is made once for each encoder, and not for each value."""
    is_usual = type(self) is not json.JSONEncoder or self.check_circular or self.indent is not None
    if is_usual or not _one_shot:
        return _usual_iterencode(self, value, _one_shot)
    return once(self, "writer", lambda: _writer(self))(value, 0)


def _writer(own: json.JSONEncoder) -> Any:
    text = encoder.encode_basestring_ascii if own.ensure_ascii else encoder.encode_basestring
    make: Any = encoder.c_make_encoder  # type: ignore[attr-defined]
    separators = own.key_separator, own.item_separator
    return make(
        None, own.default, text, None, *separators, own.sort_keys, own.skipkeys, own.allow_nan
    )


_usual_iterencode: Final = json.JSONEncoder.iterencode
