"""docs/how-to/yaml.md shows examples that work, and names every key."""

from __future__ import annotations

import re
from pathlib import Path

from pages import read

from abeyance import load, testing
from abeyance.authoring.actions import QuestionForm
from abeyance.yaml.schema import FunctionForm, GraphForm, NestedForm

PAGE = read("how-to/yaml.md")
FILES = dict(re.findall(r"```\w+\n# ([\w.]+)\n(.*?)```", PAGE, re.DOTALL))


def test_the_first_example_loads_and_does_what_the_page_says(folder: Path) -> None:
    for name in ("triage_nodes.py", "triage.yaml"):
        (folder / name).write_text(FILES[name])

    exec(compile(FILES["try_it.py"], "try_it.py", "exec"), {})


async def test_the_second_example_asks_when_the_amount_is_large(folder: Path) -> None:
    (folder / "purchase_nodes.py").write_text(
        "def price(state): return {'size': 'large' if state['amount'] > 9 else 'small'}\n"
        "def order(state): return {'ordered': True}\n"
        "def refuse(state): return {'ordered': False}\n"
    )
    (folder / "purchase.yaml").write_text(FILES["purchase.yaml"])
    graph = load("purchase.yaml")

    small = await testing.run(graph, {"amount": 5})
    yes = await testing.run(graph, {"amount": 50}, answers={"large": True})
    no = await testing.run(graph, {"amount": 50}, answers={"large": False})

    assert [ended.values["ordered"] for ended in (small, yes, no)] == [True, True, False]


async def test_the_third_example_asks_when_there_is_a_concern_that_is_not_settled(
    folder: Path,
) -> None:
    (folder / "escalate_nodes.py").write_text(
        "def price(state): return None\ndef pay(state): return None\n"
    )
    (folder / "escalate.yaml").write_text(FILES["escalate.yaml"])
    graph = load("escalate.yaml")

    async def asks(country: str, amount: float, *, checked: bool) -> bool:
        given = {"country": country, "amount": amount, "checked": checked}
        ended = await testing.run(graph, given, answers={"ask": True})
        return ended.values["approved"] is True

    assert not await asks("DE", 5, checked=False)
    assert await asks("FR", 5, checked=False)
    assert not await asks("FR", 5, checked=True)
    assert await asks("FR", 5000, checked=True)
    assert await asks("DE", 1000.5, checked=True)


def test_the_page_names_every_key() -> None:
    for form in (GraphForm, FunctionForm, QuestionForm, NestedForm):
        for name, field in form.model_fields.items():
            assert re.search(rf"\b{field.alias or name}\b", PAGE), name
