"""docs/how-to/http.md shows every call of the API, with a valid body and a valid answer."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

import jsonschema_rs
import pytest
from pages import Block, blocks, call_of
from stack import openapi_document

PAGE = "how-to/http.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Curl:
    """A call as the page types it."""

    at: int
    line: str
    body: str | None

    def __str__(self) -> str:
        return self.line


def curls(block: Block) -> Iterator[Curl]:
    for each in re.split(r"^(?=curl )", block.text.replace("\\\n", " "), flags=re.MULTILINE):
        match shlex.split(each):
            case ["curl", *words]:
                (url,) = [word for word in words if word.startswith("$URL")]
                body = words[words.index("-d") + 1] if "-d" in words else None
                method = "GET" if body is None else "POST"
                method = words[words.index("-X") + 1] if "-X" in words else method
                yield Curl(at=block.line, line=f"{method} {url.removeprefix('$URL')}", body=body)
            case _:
                pass


CURLS = [curl for block in blocks(PAGE, "sh") for curl in curls(block)]
ANSWERS = {
    answer.line: ([curl for curl in CURLS if curl.at < answer.line][-1], answer)
    for answer in blocks(PAGE, "json")
    if CURLS[0].at < answer.line
}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return openapi_document()


def partial(schema: Any) -> Any:
    """Return a schema by which fields may be missing, but none may be unknown."""
    match schema:
        case {"properties": dict(properties), **rest}:
            rest.pop("required", None)
            closed = {"additionalProperties": False, **rest}
            return closed | {"properties": {key: partial(each) for key, each in properties.items()}}
        case dict():
            return {key: partial(each) for key, each in schema.items()}
        case list():
            return [partial(each) for each in schema]
        case _:
            return schema


def test_every_call_of_the_api_is_shown(document: dict[str, Any]) -> None:
    shown = [call_of(document, curl.line)["operationId"] for curl in CURLS]
    every = [call["operationId"] for calls in document["paths"].values() for call in calls.values()]

    assert {*shown} == {*every}


@pytest.mark.parametrize("curl", [curl for curl in CURLS if curl.body is not None], ids=str)
def test_a_body_is_one_that_the_call_takes(document: dict[str, Any], curl: Curl) -> None:
    body = call_of(document, curl.line)["requestBody"]["content"]["application/json"]["schema"]

    jsonschema_rs.validate(
        {**body, "components": document["components"]}, json.loads(curl.body or "")
    )


@pytest.mark.parametrize("curl", [curl for curl in CURLS if "?" in curl.line], ids=str)
def test_the_parameters_of_an_address_are_those_that_the_call_takes(
    document: dict[str, Any], curl: Curl
) -> None:
    declared = call_of(document, curl.line)["parameters"]
    schemas = {each["name"]: each["schema"] for each in declared}
    for name, values in parse_qs(curl.line.partition("?")[2]).items():
        schema = schemas[name]
        given = values if schema.get("type") == "array" else values[0]
        # A number in an address is text.
        typed = int(values[0]) if values[0].isdigit() and schema.get("type") == "integer" else given
        jsonschema_rs.validator_for(schema, validate_formats=True).validate(typed)


@pytest.mark.parametrize("line", ANSWERS)
def test_an_answer_is_one_that_the_call_gives(document: dict[str, Any], line: int) -> None:
    curl, answer = ANSWERS[line]
    status = answer.options.removeprefix('title="').removesuffix('"')
    form = call_of(document, curl.line)["responses"][status]["content"]["application/json"]
    components = partial(document["components"])

    jsonschema_rs.validate(
        {**partial(form["schema"]), "components": components}, json.loads(answer.text)
    )
