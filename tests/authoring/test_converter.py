"""Values come back from Temporal as they were sent; a worker's runs share type adapters and graphs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from abeyance.core.spec import FunctionNode, GraphSpec
from abeyance.storage.converter import PayloadConverter
from abeyance.temporal.connection import data_converter


class Claim(BaseModel):
    amount: float


@dataclass(frozen=True)
class Seat:
    row: int
    claim: Claim | None = None


def test_models_dataclasses_and_plain_json_come_back_as_they_were_sent() -> None:
    sent: list[Any] = [
        Claim(amount=2.5),
        Seat(row=1, claim=Claim(amount=1)),
        {"a": [1, None]},
        None,
    ]
    hints: list[type] = [Claim, Seat, dict, type(None)]
    converter = data_converter().payload_converter

    assert converter.from_payloads(converter.to_payloads(sent), hints) == sent


def test_type_adapters_are_shared_between_runs() -> None:
    (payload,) = PayloadConverter().to_payloads([Seat(row=3)])
    cached = PayloadConverter().converters[b"json/plain"]._type_adapter.cache_info  # type: ignore[attr-defined]
    PayloadConverter().from_payloads([payload], [Seat])
    before = cached()
    PayloadConverter().from_payloads([payload], [Seat])

    assert cached().misses == before.misses
    assert cached().hits == before.hits + 1


def test_the_runs_of_one_graph_share_it_in_the_memory_of_their_worker() -> None:
    spec, other = (
        GraphSpec(name="g", nodes={name: FunctionNode(id=name)}) for name in ("one", "two")
    )
    payloads = PayloadConverter().to_payloads([spec, spec, other])

    first, second, third = PayloadConverter().from_payloads(payloads, [GraphSpec] * 3)

    assert (first, third) == (spec, other)
    assert second is first
