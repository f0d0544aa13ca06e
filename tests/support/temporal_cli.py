"""Temporal's own command line, as an operator uses it."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import dataclass
from typing import Any

from temporal_site import BINARY
from temporalio.client import Client as TemporalClient


@dataclass(frozen=True)
class Said:
    """The exit code and the output of a command."""

    code: int
    out: str
    errors: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self
        return json.loads(self.out)


class Operator:
    """An operator at a terminal with the `temporal` command."""

    def __init__(self, temporal: TemporalClient) -> None:
        self._where = {
            "TEMPORAL_ADDRESS": temporal.service_client.config.target_host,
            "TEMPORAL_NAMESPACE": temporal.namespace,
        }

    async def run(self, *words: str) -> Said:
        process = await asyncio.create_subprocess_exec(
            BINARY,
            "--disable-config-file",
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**_plain_environment(), **self._where},
        )
        try:
            async with asyncio.timeout(20):
                out, errors = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode is not None
        return Said(process.returncode, out.decode(), errors.decode())

    async def workflow(self, what: str, run_id: str, *words: str) -> Said:
        return await self.run("workflow", *what.split(), "--workflow-id", run_id, *words)

    async def query(self, run_id: str, name: str) -> Any:
        said = await self.workflow("query", run_id, "--name", name, "--output", "json")
        return said.json["queryResult"][0]

    async def update(self, run_id: str, name: str, **order: Any) -> Said:
        given = ("--name", name, "--input", json.dumps(order), "--output", "json")
        return await self.workflow("update execute", run_id, *given)

    async def respond(self, run_id: str, **order: Any) -> Said:
        return await self.update(run_id, "respond", **order)

    async def found(self, query: str) -> set[str]:
        said = await self.run("workflow", "list", "--query", query, "--output", "json")
        return {each["execution"]["workflowId"] for each in said.json}


def _plain_environment() -> dict[str, str]:
    return {name: text for name, text in os.environ.items() if not name.startswith("TEMPORAL_")}
