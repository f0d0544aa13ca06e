"""docs/how-to/kubernetes.md: its values make a deployment, and everything that it names exists."""

from __future__ import annotations

import re

import pytest
import yaml
from chart import CHART, RELEASE, manifests, rendered
from pages import blocks, prose, read

pytest.importorskip("helm_python")

_PAGE = "how-to/kubernetes.md"


def objects() -> set[str]:
    (values,) = blocks(_PAGE, "yaml")
    return {
        name
        for file, text in rendered(yaml.safe_load(values.text)).items()
        if file.endswith(".yaml")
        for name in manifests(text)
    }


def test_its_values_make_what_its_commands_name() -> None:
    made = {name.lower() for name in objects()}
    shell = "\n".join(each.text for each in blocks(_PAGE, "sh")) + prose(_PAGE)
    named = re.findall(r"(?:delete|logs) (deployment|job)[ /]([\w-]+)", shell)

    assert {f"{kind}/{name}" for kind, name in named} == {
        "deployment/abeyance-worker-2f81c9d",
        "job/abeyance-setup",
    }
    assert {f"{kind}/{name}" for kind, name in named} <= made
    assert f"deployment/{RELEASE}-api" in made


def test_its_settings_are_fifteen_and_every_one_reaches_a_process() -> None:
    rows = re.findall(r"^\| (`[A-Z].*?) \|", read(_PAGE), re.MULTILINE)
    variables = [name for row in rows for name in re.findall(r"`([A-Z_]+)`", row)]
    pod = (CHART / "templates" / "_pod.tpl").read_text(encoding="utf-8")
    (values,) = blocks(_PAGE, "yaml")

    assert len(variables) == 15
    for name in variables:
        assert f"name: {name}," in pod or f"name: {name}\n" in pod or name in values.text


@pytest.mark.parametrize(
    "path",
    sorted({*re.findall(r"`((?:\w+\.)+\w+)`", prose(_PAGE))} - {"notifications.yaml"}),
)
def test_a_value_that_it_names_exists(path: str) -> None:
    found = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    for part in path.split("."):
        if part == "ABEYANCE_PUBLIC_URL":
            return
        assert part in found, path
        found = found[part]
