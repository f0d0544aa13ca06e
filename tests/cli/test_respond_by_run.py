"""An answer by the id of a run goes to one question, however often the command is repeated."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from command_line import called
from stack import Api, app_for, new_id, served
from temporal_site import Site
from temporalio.client import Client as TemporalClient

from abeyance import END, START, Graph
from abeyance.token_file import add_token

NAMES = ("first", "second", "third")


def questions() -> Graph:
    """Return a graph of three questions, one after another, that take the same answer."""
    graph = Graph("questions")
    for name, before in zip(NAMES, (START, *NAMES), strict=False):
        graph.interrupt(name, prompt=f"The {name}?", response=bool)
        graph.edge(before, name)
    graph.edge(NAMES[-1], END)
    return graph


async def respond(api: Api, *arguments: str, token: str | None = None) -> tuple[int, str, str]:
    """Run the command as a script or a person repeats it."""
    variables = {} if token is None else {"ABEYANCE_TOKEN": token}
    return await called("respond", *arguments, ABEYANCE_URL=api.url, **variables)


async def open_id(api: Api, run_id: str, name: str) -> str:
    """Return the id of a question once the run asks it."""
    async with asyncio.timeout(30):
        while True:
            listed = (await api.http.get(f"/runs/{run_id}/interrupts")).json()["items"]
            if listed and listed[0]["name"] == name:
                return str(listed[0]["id"])
            await asyncio.sleep(0.05)


async def test_the_repeat_of_an_answer_that_was_lost_with_its_worker_is_a_receipt(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, questions(), patience=1.0)
    async with served(app_for(site)) as api:
        async with site.worker():
            run_id = await api.start("questions", {})
            first = await open_id(api, run_id, "first")
        away = await respond(api, run_id, "true")
        async with site.worker():
            second = await open_id(api, run_id, "second")
            repeated = await respond(api, run_id, "true")
            assert await open_id(api, run_id, "second") == second
            other = await respond(api, run_id, "false")
            third = await open_id(api, run_id, "third")
            assert (await respond(api, third, "true"))[0] == 0
            await api.until(run_id, "completed")
            ended = await respond(api, run_id, "false", "--json")
            late = await respond(api, run_id, "false", "--note", "late", "--json")

    assert away[0] == 4
    code, _, err = repeated
    assert code == 3
    assert err.startswith("abeyance: nothing_open: ")
    assert (first in err, second in err) == (True, True)
    assert (other[0], second in other[1]) == (0, True)
    (receipt,) = json.loads(ended[1])["receipts"]
    assert (receipt["interrupt_id"], receipt["replayed"]) == (second, True)
    assert (late[0], json.loads(late[2])["code"]) == (3, "run_finished")


async def test_the_repeat_of_a_yes_that_was_taken_back_says_so_and_answers_nothing(
    temporal: TemporalClient,
) -> None:
    held = Graph("held")
    held.interrupt("pay", prompt="Pay?", response=bool, hold="10m")
    held.edge(START, "pay")
    site = Site(temporal, held)
    async with served(app_for(site)) as api, site.worker():
        run_id = await api.start("held", {})
        asked = await open_id(api, run_id, "pay")
        first = await respond(api, run_id, "true", "--json")
        repeated = await respond(api, run_id, "true", "--json")
        await called("take-back", asked, ABEYANCE_URL=api.url)
        stale = await respond(api, run_id, "true", "--json")
        listed = (await api.http.get(f"/runs/{run_id}/interrupts?status=open")).json()["items"]
        again = await respond(api, asked, "true", "--json")

    receipts = [json.loads(out)["receipts"][0] for _, out, _ in (first, repeated, again)]
    assert [receipt["status"] for receipt in receipts] == ["held"] * 3
    assert [receipt["replayed"] for receipt in receipts] == [False, True, False]
    refused = json.loads(stale[2])
    assert (stale[0], refused["code"]) == (3, "stale")
    assert asked in refused["detail"]
    assert [each["id"] for each in listed] == [asked]


async def test_two_people_give_the_same_answer_to_one_question_after_the_other(
    temporal: TemporalClient, tmp_path: Path
) -> None:
    tokens = tmp_path / "tokens.json"
    may = ["runs:start", "runs:read", "runs:respond"]
    ada, bob = (add_token(tokens, name, may) for name in ("ada", "bob"))
    site = Site(temporal, questions())
    async with served(app_for(site, tokens_file=tokens)) as api, site.worker():
        api.http.headers["Authorization"] = f"Bearer {ada}"
        run_id = new_id()
        await api.start("questions", {}, run_id=run_id)
        ids = []
        codes = []
        for name, who in (("first", ada), ("second", bob)):
            ids.append(await open_id(api, run_id, name))
            codes.append((await respond(api, run_id, "true", token=who))[:2])
        await open_id(api, run_id, "third")
        repeated = [await respond(api, run_id, "true", token=who) for who in (ada, bob)]

    assert [(code, ids[n] in out) for n, (code, out) in enumerate(codes)] == [(0, True)] * 2
    assert [(code, ids[n] in err) for n, (code, _, err) in enumerate(repeated)] == [(3, True)] * 2
