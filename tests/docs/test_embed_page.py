"""docs/how-to/embed.md is a working service with a test; temporal-cloud.md has the client's variables."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

import httpx
import pytest
from pages import Block, blocks
from receiver import SECRET, SECRET_ENV
from temporal_site import Site
from temporalio.client import Client as TemporalClient
from temporalio.envconfig import ClientConfig

from abeyance.contrib.people.webhook import signed_headers
from abeyance.notifications.config import load_notifications
from abeyance.settings import Settings

PAGE = "how-to/embed.md"
CLOUD = "how-to/temporal-cloud.md"
FILES = {block.options: block.text for block in blocks(PAGE, "python")}


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Write the files of the page, and return the service among them."""
    (tmp_path / "refunds.py").write_text(blocks("get-started.md", "python")[0].text)
    for title, text in FILES.items():
        (tmp_path / title.removeprefix('title="').removesuffix('"')).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    modules = [path.stem for path in tmp_path.glob("*.py")]
    yield importlib.import_module("service")
    for name in modules:
        sys.modules.pop(name, None)


def browser_of(service: ModuleType) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(service.app)
    return httpx.AsyncClient(
        transport=transport, base_url="http://shop", cookies={"session": "a-session-of-ada"}
    )


async def test_the_test_of_the_page_passes(service: ModuleType) -> None:
    written = importlib.import_module("test_service")

    await written.test_a_user_approves_a_refund()


async def test_the_service_starts_once_shows_the_question_and_takes_the_answer(
    service: ModuleType, temporal: TemporalClient, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(temporal, service.graph)
    monkeypatch.setenv("TEMPORAL_ADDRESS", address)
    monkeypatch.setenv("ABEYANCE_TASK_QUEUE", site.settings.task_queue)
    async with (
        site.worker(),
        service.app.router.lifespan_context(service.app),
        browser_of(service) as browser,
    ):
        first = (await browser.put("/refunds/E-1", params={"amount": 250})).json()
        again = (await browser.put("/refunds/E-1", params={"amount": 250})).json()
        other = await browser.put("/refunds/E-1", params={"amount": 9})
        (asked,) = first["questions"]
        given = {"question": asked["id"], "digest": asked["digest"], "approved": True}
        stale = await browser.post("/refunds/E-1/answer", json={**given, "digest": "sha256:0"})
        answered = await browser.post("/refunds/E-1/answer", json=given)

    assert (first["new"], again) == (True, {**first, "new": False})
    assert (asked["prompt"], asked["link"]) == (
        "Refund 250 for E-1?",
        f"http://127.0.0.1:8000/inbox#{asked['id']}",
    )
    assert (other.status_code, other.json()["code"]) == (409, "run_exists")
    assert (stale.status_code, stale.json()["code"]) == (409, "stale")
    assert answered.json() == {"status": "completed", "questions": []}


async def test_the_service_believes_a_webhook_that_is_signed_and_no_other(
    service: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SECRET_ENV, SECRET)
    body = '{"data": {"run": {"run_id": "refund-A-7", "status": "completed"}}}'
    headers = signed_headers(SECRET, body.encode(), id_="msg_1", now=datetime.now(UTC))
    async with browser_of(service) as browser:
        forged = await browser.post(
            "/hooks/abeyance", content=body.replace("A-7", "A-8"), headers=headers
        )
        told = await browser.post("/hooks/abeyance", content=body, headers=headers)

    assert (forged.status_code, told.status_code) == (400, 204)
    assert service.STATUSES == {"refund-A-7": "completed"}


def test_the_rules_of_the_page_are_understood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (block,) = blocks(PAGE, "yaml")
    file = tmp_path / "notifications.yaml"
    file.write_text(block.text)
    monkeypatch.setenv(SECRET_ENV, SECRET)

    loaded = load_notifications(Settings(notifications=file))

    assert loaded is not None
    assert "run.completed" in loaded.events_of("refund")


@pytest.mark.parametrize("block", blocks(CLOUD, "ini"), ids=["key", "certificate"])
def test_the_variables_for_temporal_cloud_are_those_that_the_client_reads(
    block: Block, tmp_path: Path
) -> None:
    given = dict(re.findall(r"^(TEMPORAL_\w+)=(\S+)", block.text, re.MULTILINE))
    for name in given:
        if name.endswith("_PATH"):
            (tmp_path / name).touch()
            given[name] = str(tmp_path / name)

    config = ClientConfig.load_client_connect_config(override_env_vars=given)

    assert (config.get("target_host"), config.get("namespace")) == (
        given["TEMPORAL_ADDRESS"],
        given["TEMPORAL_NAMESPACE"],
    )
    assert config.get("tls")
