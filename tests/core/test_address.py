"""Addresses: the text of an address and its value say the same."""

import pytest
from core_strategies import addresses
from hypothesis import given

from abeyance.core.address import Address, Segment, below

CALL = Address(
    (
        Segment("graph", "refund"),
        Segment("node", "review", "2"),
        Segment("agent", "clerk"),
        Segment("tool", "delete_files", "call_1"),
    )
)


def test_an_address_reads_from_the_outside_in() -> None:
    assert str(CALL) == "graph:refund;node:review:2;agent:clerk;tool:delete_files:call_1"
    assert Address.parse(str(CALL)) == CALL


@given(addresses())
def test_every_address_survives_being_written_and_read(address: Address) -> None:
    assert Address.parse(str(address)) == address


def test_signs_that_separate_are_encoded_in_an_id_and_nothing_else_is() -> None:
    address = Address((Segment("node", "a:b;c%d é/", "x;y"),))

    assert str(address) == "node:a%3Ab%3Bc%25d é/:x%3By"


def test_the_first_of_its_name_has_no_ordinal_and_later_ones_do() -> None:
    assert below("graph:g", "node", "a") == "graph:g;node:a"
    assert below("graph:g", "node", "a", 1) == "graph:g;node:a"
    assert below("graph:g", "node", "a", 12) == "graph:g;node:a:12"


@pytest.mark.parametrize("part", ["", "graph", "graph:", ":g", "node:a:1:2", "node:a:", "node::1"])
def test_a_text_of_another_form_is_refused_by_naming_the_part(part: str) -> None:
    with pytest.raises(ValueError, match="is not of the form type:id or type:id:ordinal") as error:
        Address.parse(f"graph:g;{part};node:a")

    assert f"{part!r} in the address 'graph:g;{part};node:a'" in str(error.value)


@pytest.mark.parametrize(
    ("text", "wanted"), [("node:a%2Fb", "node:a%252Fb"), ("node:a%3ab", "node:a%253ab")]
)
def test_a_text_that_we_would_write_otherwise_is_refused(text: str, wanted: str) -> None:
    with pytest.raises(ValueError, match="has to be written") as error:
        Address.parse(text)

    assert repr(wanted) in str(error.value)


@pytest.mark.parametrize(
    ("type_", "id_", "ordinal"), [("", "a", None), ("a", "", None), ("a", "b", "")]
)
def test_a_segment_has_no_empty_part(type_: str, id_: str, ordinal: str | None) -> None:
    with pytest.raises(
        ValueError, match="needs a type and an id, and its ordinal may not be empty"
    ):
        Segment(type_, id_, ordinal)


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("graph:refund;node:check", "refund.check"),
        ("graph:refund;node:review:2;graph:legal;node:gate", "legal.gate"),
        ("graph:refund;node:review:2;agent:clerk;node:model:3", "refund.clerk.model"),
        ("graph:refund;node:review;agent:clerk;tool:delete:c1", "refund.clerk.delete"),
        ("graph:g;node:n;agent:a;tool:ask:c1;agent:b;tool:pay:c2", "g.b.pay"),
        ("graph:g;node:check;process:p1", "g.p1"),
        ("process:p1", "p1"),
    ],
)
def test_a_visit_is_labelled_by_its_graph_or_its_agent(text: str, label: str) -> None:
    assert Address.parse(text).label == label


def test_an_address_tells_a_tool_call_from_other_visits() -> None:
    agent = Address.parse("graph:g;node:n;agent:clerk")

    call = below(str(agent), "tool", "pay", "a:b")
    assert call == "graph:g;node:n;agent:clerk;tool:pay:a%3Ab"
    assert (Address.parse(call).is_call, agent.is_call) == (True, False)
