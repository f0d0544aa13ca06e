"""The image is built from the Dockerfile and runs as in production: with a user other than root, on a
read-only file system, with no capability. One build serves all tests: run `make image`.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from image import Container, Image, Said, built_image
from ports import free_port
from postgres import Cluster, running_cluster
from slack_site import FakeSlack, fake_slack, in_slack
from temporal_site import BINARY, UP_WITHIN, eventually
from temporalio.testing import WorkflowEnvironment

from abeyance.token_file import add_token

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]

GRAPHS = """\
from pydantic import BaseModel

from abeyance import END, START, Graph


class Refund(BaseModel):
    amount: float
    approved: bool | None = None
    receipt: str | None = None


graph = Graph("refund", state=Refund)
graph.interrupt("approve", prompt="Refund {amount}?", response=bool, answer_to="approved")


@graph.node
def pay(state: Refund) -> dict:
    return {"receipt": f"paid {state.amount:g}"}


graph.edge(START, "approve")
graph.edge("approve", "pay", when={"approved": True})
graph.edge("approve", END, when="else")
"""
ANYWHERE = "0.0.0.0"  # noqa: S104
LACKING = "from abeyance.adapters.langgraph import langgraph_agent\n"
STATUS = """\
import glob, json, os
(process,) = [
    os.path.dirname(path)
    for path in glob.glob("/proc/[0-9]*/cmdline")
    if b"/bin/abeyance\\0" in open(path, "rb").read() and b"catatonit" not in open(path, "rb").read()
]
lines = open(process + "/status").read().splitlines()
said = dict(line.split(":\\t", 1) for line in lines)
said["is_read_only"] = bool(os.statvfs("/").f_flag & os.ST_RDONLY)
print(json.dumps(said))
"""


@dataclass
class Place:
    """An installation around the image: Temporal, an empty database, and files to mount."""

    image: Image
    cluster: Cluster
    url: str
    variables: dict[str, str]
    mounts: dict[Path, str]

    async def run(self, *arguments: str, image: str | None = None, **variables: str | None) -> Said:
        """Run a command of the image to its end. A variable that is None is left out."""
        return await asyncio.to_thread(
            self.image.run,
            *arguments,
            image=image,
            variables=self.with_(variables),
            mounts=self.mounts,
        )

    def with_(self, variables: Mapping[str, str | None]) -> dict[str, str]:
        changed: dict[str, str | None] = {**self.variables, **variables}
        return {name: value for name, value in changed.items() if value is not None}


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    with built_image() as image:
        yield image


@pytest.fixture(scope="module")
def cluster(image: Image) -> Iterator[Cluster]:
    with running_cluster() as cluster:
        yield cluster


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def bare_temporal(image: Image) -> AsyncIterator[str]:
    """Yield the address of a Temporal that nobody has prepared."""
    async with await WorkflowEnvironment.start_local(
        dev_server_existing_path=BINARY,
        dev_server_startup_timeout=UP_WITHIN,
        dev_server_log_level="never",
    ) as environment:
        yield environment.client.service_client.config.target_host


@pytest.fixture
def place(image: Image, cluster: Cluster, bare_temporal: str, tmp_path: Path) -> Iterator[Place]:
    graphs = tmp_path / "graphs"
    graphs.mkdir()
    (graphs / "refunds.py").write_text(GRAPHS)
    (graphs / "lacking.py").write_text(LACKING)
    with cluster.database(is_empty=True) as url:
        yield Place(
            image=image,
            cluster=cluster,
            url=url,
            variables={
                "TEMPORAL_ADDRESS": bare_temporal,
                "ABEYANCE_DATABASE_URL": url.replace(f":{cluster.password}", ""),
                "PGPASSWORD": cluster.password,
                "ABEYANCE_APP": "refunds:graph",
            },
            mounts={graphs: "/graphs"},
        )


async def test_all_processes_run_confined_from_the_image_and_stop(
    place: Place, tmp_path: Path
) -> None:
    first, again = await place.run("setup"), await place.run("setup")
    assert (first.code, again.code) == (0, 0), (first, again)
    assert ": created" in first.out
    assert ": up to date" in again.out
    token = add_token(tmp_path / "tokens.json", "ada", ["*"])
    # The user of the image has to read the file.
    (tmp_path / "tokens.json").chmod(0o644)
    (tmp_path / "notifications.yaml").write_text(json.dumps(in_slack()))
    place.mounts[tmp_path / "tokens.json"] = "/run/secrets/tokens"
    place.mounts[tmp_path / "notifications.yaml"] = "/run/config/notifications.yaml"
    port, metrics = free_port(), free_port()

    async with fake_slack() as slack, AsyncExitStack() as stack:
        rules = {
            "ABEYANCE_NOTIFICATIONS": "/run/config/notifications.yaml",
            "ABEYANCE_TOKENS_FILE": "/run/secrets/tokens",
            "ABEYANCE_PUBLIC_URL": "https://abeyance.example.com",
            "ABEYANCE_SLACK_API": slack.url,
            "ABEYANCE_SLACK_BOT_TOKEN": "xoxb-test",
            "ABEYANCE_SLACK_APP_TOKEN": "xapp-test",
            "ABEYANCE_METRICS_ADDRESS": f"127.0.0.1:{metrics}",
        }
        variables = place.with_(rules)
        containers = [
            stack.enter_context(
                place.image.container(*arguments, variables=variables, mounts=place.mounts)
            )
            for arguments in (
                ("worker",),
                ("api", "--host", ANYWHERE, "--port", str(port)),
                ("slack",),
            )
        ]
        http = await stack.enter_async_context(
            httpx.AsyncClient(
                base_url=f"http://127.0.0.1:{port}",
                timeout=40,
                trust_env=False,
                headers={"Authorization": f"Bearer {token}"},
            )
        )
        await until_up(http, slack, containers)

        await is_answered(http, slack)

        for container in containers:
            said = json.loads(await asyncio.to_thread(container.python, STATUS))
            assert said["Uid"].split() == ["10001"] * 4
            assert {int(said[name], 16) for name in ("CapPrm", "CapEff", "CapBnd")} == {0}
            assert said["NoNewPrivs"] == "1"
            assert said["is_read_only"]
            began = time.monotonic()
            code = await asyncio.to_thread(container.stop)
            assert (container.name, code) == (container.name, 0), container.text
            assert time.monotonic() - began < 40
            assert "Traceback" not in container.text


async def until_up(http: httpx.AsyncClient, slack: FakeSlack, containers: list[Container]) -> None:
    async def are_up() -> bool:
        for container in containers:
            assert container.process.poll() is None, container.text
        try:
            is_ready = (await http.get("/readyz")).status_code == httpx.codes.OK
        except httpx.TransportError:
            return False
        return is_ready and "is up" in containers[-1].text

    await eventually(are_up, seconds=120)


async def is_answered(http: httpx.AsyncClient, slack: FakeSlack) -> None:
    """Start a run that asks in Slack too, answer it over HTTP, and see the answer in Slack."""
    body = {"graph": "refund", "input": {"amount": 250}, "run_id": "refund-A-7"}
    assert (await http.post("/runs", json=body)).status_code == httpx.codes.CREATED
    message = await slack.only_message()
    assert "Refund 250" in message.text
    answered = await http.post("/runs/refund-A-7/respond", json={"response": True})
    assert answered.status_code == httpx.codes.OK, answered.text
    view = (await http.get("/runs/refund-A-7", params={"wait": "PT30S"})).json()
    assert (view["status"], view["values"]["receipt"]) == ("completed", "paid 250")
    await eventually(lambda: "Approved by" in message.text)


LINES: dict[str, tuple[tuple[str, ...], dict[str, Any], int, str]] = {
    "no password": (("setup",), {"PGPASSWORD": None}, 4, "no password supplied"),
    "a graph whose extra the image lacks": (
        ("worker", "--check"),
        {"ABEYANCE_APP": "lacking:graph"},
        2,
        "pip install 'abeyance[langgraph]'",
    ),
    "no rules for Slack": (("slack",), {}, 2, "ABEYANCE_NOTIFICATIONS is not set"),
}


@pytest.mark.parametrize("what", LINES)
async def test_the_image_names_missing_settings_in_one_line(place: Place, what: str) -> None:
    arguments, variables, code, told = LINES[what]

    said = await place.run(*arguments, **variables)

    assert (said.code, len(said.errors.splitlines())) == (code, 1), said
    assert said.errors.startswith("abeyance: ")
    assert told in said.errors


async def test_an_image_with_the_graphs_in_it_is_made_of_it(place: Place, tmp_path: Path) -> None:
    (tmp_path / "desk").mkdir()
    (tmp_path / "desk" / "desk.py").write_text(GRAPHS)
    place.mounts.clear()
    name = await asyncio.to_thread(place.image.with_file, tmp_path / "desk" / "desk.py", "/graphs/")

    said = await place.run("worker", "--check", image=name, ABEYANCE_APP="desk:graph")

    assert (said.code, said.errors) == (0, "")
    assert said.out.startswith("graphs: refund\n")
