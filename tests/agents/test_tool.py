"""Functions that can be tools, and what the model is told of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Annotated, Any

import pytest
from pydantic import AliasChoices, BaseModel, Field, SecretStr
from tool_calls import calling, written

from abeyance import Remember
from abeyance.agents.tool import Tool, ToolContext
from abeyance.agents.tool_decorator import tool
from abeyance.agents.tool_errors import ArgumentsError, ToolDeclarationError
from abeyance.authoring.context import Context


class Payee(BaseModel):
    iban: str
    name: str = "?"


class Speed(Enum):
    SLOW = "slow"
    FAST = "fast"


def declared_with(function: Callable[..., Any], **options: Any) -> tuple[str, ...]:
    with pytest.raises(ToolDeclarationError) as refused:
        tool(**options)(function)
    return refused.value.faults


async def test_a_tool_is_still_the_function_that_it_was() -> None:
    @tool
    def double(n: int) -> int:
        return 2 * n

    @tool
    async def triple(n: int) -> int:
        return 3 * n

    assert double(4) == 8
    assert await triple(4) == 12


def test_the_schema_of_a_tool_has_its_arguments_but_not_the_context() -> None:
    @tool
    async def transfer(
        ctx: ToolContext,
        amount: Annotated[float, Field(description="in euros", gt=0)],
        to: Payee,
        note: str = "",
    ) -> str:
        """Send money.

        It cannot be taken back.
        """
        return "sent"

    assert transfer.name == "transfer"
    assert transfer.description == "Send money.\n\nIt cannot be taken back."
    assert transfer.schema == {
        "type": "object",
        "properties": {
            "amount": {"type": "number", "description": "in euros", "exclusiveMinimum": 0},
            "to": {"$ref": "#/$defs/Payee"},
            "note": {"type": "string", "default": ""},
        },
        "required": ["amount", "to"],
        "additionalProperties": False,
        "$defs": {
            "Payee": {
                "type": "object",
                "properties": {
                    "iban": {"type": "string"},
                    "name": {"type": "string", "default": "?"},
                },
                "required": ["iban"],
            }
        },
    }


def test_names_that_mean_something_elsewhere_are_names_of_arguments() -> None:
    @tool
    def odd(
        schema: str, copy: int, title: str, _x: int, from_: Annotated[str, Field(alias="from")]
    ) -> None: ...

    assert set(odd.schema["properties"]) == {"schema", "copy", "title", "_x", "from"}
    sent = {"schema": "s", "copy": 1, "title": "t", "_x": 2, "from": "f"}
    assert odd.read(sent) == sent


@pytest.mark.parametrize("name", ["context", "ctx"])
async def test_a_first_parameter_without_a_type_is_the_context_by_its_name(name: str) -> None:
    who = tool(written(f"def who({name}, n: int): return [{name}.call_id, n]"))

    assert list(who.schema["properties"]) == ["n"]
    assert await who.run(calling(), {"n": 1}) == ["call_1", 1]


async def test_a_context_is_found_by_its_type_in_any_place() -> None:
    @tool
    def one(n: int, c: Context) -> str:
        return c.run_id

    # The author may import the type for the type checker only.
    @tool
    def two(n: int, c: unseen.ToolContext) -> str:  # type: ignore[name-defined]  # noqa: F821
        return str(c.call_id)

    assert await one.run(calling(), {"n": 1}) == "r1"
    assert await two.run(calling(), {"n": 1}) == "call_1"


async def test_a_bound_method_is_a_tool() -> None:
    class Shop:
        def __init__(self) -> None:
            self.sold: list[str] = []

        def sell(self, what: str) -> int:
            """Sell it."""
            self.sold.append(what)
            return len(self.sold)

    shop = Shop()
    sell = tool(shop.sell)

    assert (sell.name, sell.description) == ("sell", "Sell it.")
    assert await sell.run(calling(), {"what": "a hat"}) == 1
    assert shop.sold == ["a hat"]


async def test_a_partial_and_an_object_that_can_be_called_are_tools_under_a_given_name() -> None:
    def power(base: int, exponent: int = 1) -> int:
        return int(base**exponent)

    class Adder:
        def __call__(self, a: int, b: int) -> int:
            return a + b

    square = tool(name="square")(partial(power, exponent=2))
    add = tool(name="add")(Adder())

    assert await square.run(calling(), square.read({"base": 3})) == 9
    assert await add.run(calling(), add.read({"a": 1, "b": 2})) == 3


def test_a_callable_without_a_signature_cannot_be_a_tool() -> None:
    assert "its signature cannot be read" in declared_with(dict, name="x")[0]


def test_a_faulty_tool_declaration_lists_all_its_faults() -> None:
    bad = written(
        "def bad(a, /, b, *c, d: int = None, e: Nowhere = 1, f: set[int] = object(), **g): ..."
    )

    faults = declared_with(
        bad,
        name="no good",
        approve="yes",
        retries=-1,
        timeout=0,
        heartbeat="soon",
        max_result=True,
        on_unknown="shrug",
        approval_timeout=-3600,
        on_timeout="goto:escalate",
        requested_capability="has space",
        asks=["has a space"],
    )

    told = "\n".join(faults)
    for expected in (
        "its name 'no good' is invalid",
        "'a' is positional-only",
        "'b' has no type",
        "'c' is variadic positional",
        "'d' has a default that does not fit its type",
        "'e' has the type 'Nowhere', which cannot be resolved",
        "'f' has a default that does not fit its type",
        "'g' is variadic keyword",
        "approve='yes' is invalid",
        "retries=-1",
        "timeout=0 s is invalid",
        "'soon' is not a duration",
        "max_result=True",
        "on_unknown='shrug'",
        "its approval has a timeout of -3600 s",
        "on_timeout='goto:escalate' is invalid",
        "'has space', which no principal can have",
        "its code, asks=, requests the capability 'has a space'",
    ):
        assert expected in told
    assert len(faults) == 18


def test_a_tool_cannot_have_arguments_that_a_model_cannot_send() -> None:
    def secret(password: SecretStr) -> None: ...
    def opaque(lock: threading.Lock) -> None: ...
    def unhashable(thing: object = object()) -> None: ...
    def two_names(a: Annotated[int, Field(validation_alias=AliasChoices("x", "y"))]) -> None: ...
    def same_name(a: Annotated[int, Field(alias="b")], b: int) -> None: ...
    def two_contexts(ctx: ToolContext, other: Context) -> None: ...

    method = written("def method(self, n: int): ...")

    assert "'password' is a secret" in declared_with(secret)[0]
    assert "'lock' cannot be described to a model" in declared_with(opaque)[0]
    assert "'thing' has a default that is not JSON" in declared_with(unhashable)[0]
    assert "different aliases" in declared_with(two_names)[0]
    assert declared_with(same_name) == ("'b' is the name of two arguments",)
    assert "'ctx' and 'other' both take the context" in declared_with(two_contexts)[0]
    assert "tool(thing.method)" in declared_with(method)[0]
    assert "1 to 64 letters" in declared_with(lambda: None)[0]


async def _shown(amount: int) -> dict[str, str]:
    return {"summary": "fine"}


async def _of_another(currency: str) -> dict[str, str]:
    return {"summary": "fine"}


WEEK = Remember(most="7d")


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"approve": False, "requested_capability": "pay"}, "no effect without an approval"),
        ({"approve": False, "approval_timeout": "1h"}, "no effect without an approval"),
        ({"approve": False, "prompt": "Really?"}, "no effect without an approval"),
        ({"approve": False, "preview": _shown}, "preview= has no effect without an approval"),
        ({"approve": False, "remember": WEEK}, "remember= has no effect without an approval"),
        ({"approve": False, "decisions": ["approve"]}, "decisions= has no effect without an"),
        ({"preview": lambda amount: {}}, "is invalid: use an async function of the arguments"),
        ({"preview": _of_another}, "preview= takes 'currency', which is not an argument"),
        ({"decisions": []}, "decisions=: none given: use some of approve, edit"),
        ({"decisions": ["maybe"]}, "decisions=: 'maybe' given: use some of"),
        ({"remember": Remember(most="7d", same=["who"])}, "names 'who', which is not an argument"),
        ({"remember": Remember(most="7d", below={"to": 3})}, "'to' is not a number"),
        ({"remember": "7d"}, "use Remember(most='7d'"),
        ({"remember": WEEK, "quorum": 2}, "no effect with quorum="),
        ({"remember": WEEK, "hold": "5m"}, "no effect with quorum="),
    ],
)
def test_invalid_options_of_an_approval_are_faults(options: dict[str, Any], fault: str) -> None:
    async def pay(amount: int, to: str) -> None: ...

    assert fault in "\n".join(declared_with(pay, **{"approve": True, **options}))


def test_a_prompt_shows_only_arguments_of_the_tool() -> None:
    def pay(amount: int, payee: Payee) -> None: ...

    assert declared_with(pay, approve=True, prompt="Pay {amont} to {payee.name}, {to.iban}?") == (
        "prompt= shows {amont}, which is not an argument of the tool; there are 'amount', 'payee'",
        "prompt= shows {to.iban}, which is not an argument of the tool; there are 'amount', 'payee'",
    )
    assert tool(approve=True, prompt="Pay {amount:,.2f} to {payee.iban}? {{sic}}")(pay).approve


def test_a_default_answer_has_to_be_one_that_a_person_could_give() -> None:
    def pay(n: int) -> None: ...

    options: dict[str, Any] = {"approve": True, "approval_timeout": "1h"}
    faults = declared_with(pay, **options, on_timeout={"default": {"approved": "sure"}})

    assert "default answer that does not fit: /approved" in faults[0]
    faults = declared_with(pay, approve=True, on_timeout="reject")
    assert faults == ("its approval has on_timeout but no approval_timeout: set approval_timeout=",)
    assert tool(**options, on_timeout={"default": {"approved": False}})(pay).approve is True


def test_a_tool_decorator_with_a_text_says_how_to_name_the_tool() -> None:
    with pytest.raises(TypeError, match=r"write @tool\(name='pay'\)"):
        tool("pay")  # type: ignore[call-overload]


# ------------------------------------------------------------------------------------ by a JSON Schema


async def test_a_tool_of_a_json_schema_takes_all_arguments_as_one_mapping() -> None:
    @tool(
        name="look_up",
        description="Look it up.",
        schema={"type": "object", "properties": {"ctx": {"type": "integer"}}, "required": ["ctx"]},
    )
    async def forward(context: ToolContext, arguments: dict[str, Any]) -> Any:
        return [context.call_id, arguments]

    assert isinstance(forward, Tool)
    assert forward.schema["required"] == ["ctx"]
    assert await forward.run(calling(), forward.read('{"ctx": 1}')) == ["call_1", {"ctx": 1}]
    for sent, told in (
        ('{"ctx": "x"}', '- ctx: "x" is not of type "integer"'),
        ("{}", '- the arguments: "ctx" is a required property'),
        ("[]", "one JSON object; this is []"),
        ("{", "not JSON"),
    ):
        with pytest.raises(ArgumentsError) as refused:
            forward.read(sent)
        assert told in refused.value.text


def test_a_json_schema_that_cannot_be_used_is_a_fault() -> None:
    def forward(context: ToolContext, arguments: dict[str, Any]) -> None: ...

    assert "is not a JSON Schema" in declared_with(forward, schema={"type": "objekt"})[0]
    assert "has the type" in declared_with(forward, schema={"type": "array"})[0]
    assert (
        "take (context, arguments)"
        in declared_with(lambda: 1, name="x", schema={"type": "object"})[0]
    )
