"""kill -9 of the worker while a notification is on its way."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from killable import killable_server, worker_process
from killed_graphs import patient
from receiver import SECRET, SECRET_ENV, hook, receiver
from temporal_site import eventually

from abeyance.client import Client
from abeyance.notifications.config import load_notifications
from abeyance.settings import Settings

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

_APP = "killed_graphs:graphs"
_WITHIN = 30.0
"""Seconds within which notifications go on once a worker is back."""


async def test_notifications_go_on_with_the_same_ids_soon_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = tmp_path / "release"
    release.touch()
    monkeypatch.setenv(SECRET_ENV, SECRET)
    async with killable_server(tmp_path) as server, receiver([None]) as hooked:
        rule = {"when": {"event": "interrupt.opened"}, "to": [hook(f"{hooked.url}/hook")]}
        file = tmp_path / "notifications.yaml"
        file.write_text(json.dumps({"rules": [rule]}), encoding="utf-8")
        temporal = (await server.client()).temporal
        rules = load_notifications(Settings(notifications=file))
        client = Client(temporal, notifications=rules, patience=30)
        variables = {"ABEYANCE_NOTIFICATIONS": str(file), SECRET_ENV: SECRET}
        ids = [f"r{number}" for number in range(20)]
        for id_ in ids:
            journal = str(tmp_path / f"journal-{id_}")
            await client.runs.start(
                patient, {"journal": journal, "release": str(release)}, run_id=id_
            )
        with worker_process(server, _APP, tmp_path / "first.log", variables=variables):
            # The first delivery hangs, so the kill comes in the middle of it.
            await eventually(lambda: len(hooked.posts()) >= 3, seconds=90)
        with worker_process(server, _APP, tmp_path / "second.log", variables=variables):
            back = time.monotonic()
            await eventually(
                lambda: len({each.json["data"]["run"]["run_id"] for each in hooked.posts()}) == 20,
                seconds=90,
            )
            took = time.monotonic() - back

    assert took < _WITHIN
    by_run = {each.json["data"]["run"]["run_id"]: set[str]() for each in hooked.posts()}
    for each in hooked.posts():
        by_run[each.json["data"]["run"]["run_id"]].add(each.headers["webhook-id"])
    assert {len(webhook_ids) for webhook_ids in by_run.values()} == {1}
    assert len(hooked.posts()) > 20
