"""Personal links: what they show, which answers they take, and when they are void."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from pydantic import BaseModel
from sample_graphs import State
from stack import Api, app_for, problem, served
from temporal_site import ANYBODY, Site
from temporalio.client import Client as TemporalClient

from abeyance import START, Context, Graph, Principal, Refusal, views
from abeyance.notifications.links import PersonalLink

KEY = b"k" * 40
JSON = {"Accept": "application/json"}
FILE = """\
links: {base: "https://abeyance.example.com", key_env: LINK_KEY}
people:
  ada: {groups: [finance], capabilities: ["refunds:approve"]}
  bob: {groups: [legal], capabilities: ["refunds:approve"], reads: {team: legal}}
  eve: {groups: [finance]}
"""


def asking() -> Graph:
    graph = Graph("asking", state=State)
    graph.interrupt(
        "approve",
        prompt="Pay <b>{amount}</b>, **once**?",
        payload={"to": "<script>"},
        response=bool,
        requested_capability="refunds:approve",
        assignees=["group:finance", "bob"],
        timeout="2d",
    )
    graph.edge(START, "approve")
    return graph


@pytest_asyncio.fixture(scope="module")
async def site(temporal: TemporalClient) -> AsyncIterator[Site]:
    made = Site(temporal, asking())
    async with made.worker():
        yield made


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The file with the people who may be sent a link. The key of links is in the environment."""
    file = tmp_path_factory.mktemp("people") / "notifications.yaml"
    file.write_text(FILE, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LINK_KEY", KEY.decode())
        yield file


@pytest_asyncio.fixture(scope="module")
async def api(site: Site, people: Path) -> AsyncIterator[Api]:
    tokens = people.parent / "tokens.json"
    tokens.write_text(json.dumps([{"subject": "boss", "sha256": "0" * 64, "capabilities": ["*"]}]))
    async with served(app_for(site, notifications=people, tokens_file=tokens)) as made:
        yield made


async def asked(site: Site, **options: Any) -> views.InterruptView:
    run_id = await site.start(**options)
    (question,) = (await site.until(run_id, "awaiting-input")).interrupts
    return question


def link(
    question: views.InterruptView, person: str = "ada", *, days: int = 0, **changes: Any
) -> str:
    """Return the path of a link that was made so many days ago."""
    made_at = datetime.now(UTC) - timedelta(days=days)
    made = PersonalLink.of({**question.model_dump(mode="json"), **changes}, person, now=made_at)
    return f"/links/{made.token(KEY)}"


def filed() -> Graph:
    graph = Graph("filed", state=State)

    @graph.node(asks="refunds:approve")
    async def show(state: State, ctx: Context) -> None:
        await ctx.file("other.png", b"another picture")
        payload = {
            "scan": [await ctx.file("a 'scan'.png", b"a picture")],
            "letter": await ctx.file("letter.html", b"<script>"),
            "trap": {"$file": "javascript:alert(1)", "name": "trap"},
        }
        await ctx.interrupt(
            "see",
            prompt="Pay?",
            payload=payload,
            response=bool,
            assignees=["ada"],
            requested_capability="refunds:approve",
        )

    graph.edge(START, "show")
    return graph


async def test_a_link_shows_the_files_of_its_question_and_no_others(
    temporal: TemporalClient, people: Path
) -> None:
    site = Site(temporal, filed())
    async with site.worker(), served(app_for(site, notifications=people)) as api:
        question = await asked(site)
        at = link(question)
        page = await api.http.get(at)
        scan, letter = (
            question.payload["scan"][0]["$file"].rpartition("/")[2],
            question.payload["letter"]["$file"].rpartition("/")[2],
        )
        picture = await api.http.get(f"{at}/files/{scan}")
        text = await api.http.get(f"{at}/files/{letter}")
        other = await api.http.get(f"{at}/files/{'0' * 64}")
        forged = await api.http.get(f"{at}x/files/{scan}")

    assert f"<img src='{at}/files/{scan}' alt='a &#x27;scan&#x27;.png'>" in page.text
    assert f"<a href='{at}/files/{letter}' download='letter.html'>" in page.text
    assert "href='javascript" not in page.text
    assert (picture.content, picture.headers["content-type"]) == (b"a picture", "image/png")
    assert text.headers["content-disposition"].startswith("attachment")
    problem(other, 404, "not_found")
    problem(forged, 401, "link_expired")


async def test_a_link_says_that_somebody_else_has_claimed_its_question(
    site: Site, api: Api
) -> None:
    question = await asked(site)
    bob = Principal(subject="bob", capabilities=("refunds:approve",))
    await site.client.run(question.run_id).claim(question.id, principal=bob)
    shown = (await api.http.get(link(question))).text
    refused = await api.http.post(link(question), json={"response": True})
    await site.client.run(question.run_id).release(question.id, principal=bob)
    after = (await api.http.get(link(question))).text

    assert "bob has claimed this question until " in shown
    problem(refused, 409, "claimed")
    assert "has claimed" not in after


async def test_a_link_shows_its_question_to_somebody_who_has_no_token(site: Site, api: Api) -> None:
    question = await asked(site, input={"amount": 3})
    page = await api.http.get(link(question))
    read = await api.http.get(link(question), headers=JSON)

    assert page.status_code == 200
    assert page.headers["referrer-policy"] == "no-referrer"
    assert page.headers["cache-control"] == "no-store"
    assert "Pay &lt;b&gt;<bdi>3</bdi>&lt;/b&gt;, <strong>once</strong>?" in page.text
    assert "<dt>to</dt><dd>&lt;script&gt;</dd>" in page.text
    assert '<script>"' not in page.text
    assert "You are</dt><dd>ada" in page.text
    assert read.json()["id"] == question.id
    assert (await site.until(question.run_id, "awaiting-input")).interrupts


async def test_the_answer_counts_once_as_that_of_the_person(site: Site, api: Api) -> None:
    question = await asked(site)
    for body, code in (({"response": "yes"}, "invalid_answer"), ({"answer": 1}, "invalid_body")):
        problem(await api.http.post(link(question), json=body), 422, code)
    first = await api.http.post(link(question), json={"response": True, "note": "fine"})
    again = await api.http.post(link(question), json={"response": True})
    other = await api.http.post(link(question), json={"response": False})
    await site.ended(question.run_id)
    page = await api.http.get(link(question))

    (receipt,) = first.json()["receipts"]
    assert (first.status_code, receipt["answered_by"], receipt["replayed"]) == (200, "ada", False)
    assert again.json()["receipts"] == [{**receipt, "replayed": True}]
    problem(other, 409, "already_answered")
    assert "You have answered this at" in page.text


async def test_a_vote_by_a_link_is_not_replaced_by_that_link(
    temporal: TemporalClient, people: Path
) -> None:
    graph = Graph("voting", state=State)
    graph.interrupt("vote", prompt="Pay?", response=bool, quorum=2, assignees=["ada"])
    graph.edge(START, "vote")
    site = Site(temporal, graph)
    async with site.worker(), served(app_for(site, notifications=people)) as api:
        question = await asked(site)
        first = await api.http.post(link(question), json={"response": True})
        other = await api.http.post(link(question), json={"response": False})
        again = await api.http.post(link(question), json={"response": True})

    (receipt,) = first.json()["receipts"]
    assert receipt["status"] == "voted"
    problem(other, 409, "already_answered")
    assert again.json()["receipts"] == [{**receipt, "replayed": True}]


async def test_the_repeat_of_a_vote_that_changed_what_is_asked_gets_its_receipt(
    temporal: TemporalClient, people: Path
) -> None:
    class Decision(BaseModel):
        approved: bool
        amount: int

    graph = Graph("revising", state=State)
    graph.interrupt("vote", prompt="Pay?", response=Decision, quorum=2, assignees=["ada", "eve"])
    graph.edge(START, "vote")
    site = Site(temporal, graph)
    async with site.worker(), served(app_for(site, notifications=people)) as api:
        question = await asked(site)
        more, less = ({"response": {"approved": True, "amount": each}} for each in (9, 5))
        await api.http.post(link(question, "eve"), json=more)
        page = await api.http.get(link(question))
        revised, again = [await api.http.post(link(question), json=less) for _ in range(2)]
        stale = await api.http.post(link(question, "eve"), json=more)
        opened = await api.http.get(link(question), headers=JSON)

    assert "<h2>Votes</h2><dl><div><dt>eve</dt>" in page.text
    (receipt,) = revised.json()["receipts"]
    assert again.json()["receipts"] == [{**receipt, "replayed": True}]
    for void_now in (stale, opened):
        problem(void_now, 401, "link_expired")


async def test_a_link_gives_the_capabilities_of_the_file_and_none_that_were_delegated(
    site: Site, api: Api
) -> None:
    boss = Principal(subject="boss", capabilities=("*",))
    until = datetime.now(UTC) + timedelta(days=1)
    await site.client.delegations.make("eve", until=until, principal=boss)
    question = await asked(site)

    answered = await api.http.post(link(question, "eve"), json={"response": True})
    problem(answered, 403, "capability_required")


async def void(api: Api, path: str) -> str:
    """Return why a link is void, which a program and its page both say, for a read and for an answer."""
    detail = str(problem(await api.http.get(path, headers=JSON), 401, "link_expired")["detail"])
    answered = problem(await api.http.post(path, json={"response": True}), 401, "link_expired")
    page = await api.http.get(path)
    assert answered["detail"] == detail
    assert page.status_code == 401
    assert detail.partition(",")[0] in page.text
    assert 'href="/signin?next=%2Finbox"' in page.text
    return detail.removeprefix("This link ").partition(",")[0]


async def test_a_link_is_void_once_somebody_else_has_answered(site: Site, api: Api) -> None:
    question = await asked(site)
    await site.client.run(question.run_id).respond(response=True, principal=ANYBODY)

    assert await void(api, link(question, "eve")) == (
        "leads to a question that somebody else has answered"
    )


async def test_a_link_is_void_once_the_question_was_withdrawn(site: Site, api: Api) -> None:
    question = await asked(site)
    await site.client.run(question.run_id).cancel()
    await site.ended(question.run_id)

    assert await void(api, link(question)) == "leads to a question that was withdrawn"


@pytest.mark.parametrize(
    ("person", "changes", "why"),
    [
        ("ada", {"digest": "sha256:another"}, "leads to a question that shows something else now"),
        ("zoe", {}, "is for somebody whom this service no longer knows"),
        ("bob", {}, "leads to a run that you may not see"),
        ("ada", {"id": "nowhere.0123456789abcdef"}, "leads to a run that is gone"),
    ],
)
async def test_a_link_is_void_if_it_is_not_for_this(
    site: Site, api: Api, person: str, changes: dict[str, Any], why: str
) -> None:
    question = await asked(site, labels={"team": "finance"})

    assert await void(api, link(question, person, **changes)) == why


async def test_a_link_is_void_once_the_question_was_given_to_others_and_one_to_them_is_not(
    site: Site, api: Api
) -> None:
    question = await asked(site, labels={"team": "legal"})
    boss = Principal(subject="boss", capabilities=("*",))
    assert (await api.http.get(link(question), headers=JSON)).status_code == 200
    await site.client.run(question.run_id).reassign(question.id, "bob", principal=boss)

    assert await void(api, link(question)) == "leads to a question that was given to others"
    answered = await api.http.post(link(question, "bob"), json={"response": True})
    assert answered.status_code == 200, answered.text


async def test_a_link_of_another_key_is_foreign(site: Site, api: Api) -> None:
    question = await asked(site)
    made = PersonalLink(
        question=question.id,
        person="ada",
        digest=str(question.digest),
        made_at=datetime.now(UTC),
    )
    why = "was not made by this service"

    for token in (made.token(b"x" * 40), made.token(KEY)[:-3], "nothing"):
        assert await void(api, f"/links/{token}") == why


async def test_a_service_without_a_link_key_refuses_every_link(site: Site) -> None:
    async with served(app_for(site)) as plain:
        assert await void(plain, "/links/a.b.c") == ("was not made by this service")


async def test_a_link_is_followed_from_another_site_but_answered_from_its_page_only(
    site: Site, api: Api
) -> None:
    question = await asked(site)
    mail = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    opened = await api.http.get(link(question), headers=mail)
    foreign = {"Sec-Fetch-Site": "cross-site", "Origin": "https://example.org"}

    assert opened.status_code == 200
    problem(
        await api.http.post(link(question), json={"response": True}, headers=foreign),
        403,
        "foreign_origin",
    )


async def test_a_link_lasts_as_long_as_its_question_whose_deadline_was_moved(
    site: Site, api: Api
) -> None:
    question = await asked(site)
    # A link to a question without a deadline is too old after seven days.
    old = link(question, days=8)
    run = site.client.run(question.run_id)
    moved = datetime.now(UTC) + timedelta(days=30)

    await run.edit_deadline(question.id, deadline=None, principal=ANYBODY)
    assert await void(api, old) == "is too old"
    await run.edit_deadline(question.id, deadline=moved, principal=ANYBODY)
    opened = await api.http.get(old, headers=JSON)

    assert opened.status_code == 200
    assert datetime.fromisoformat(opened.json()["deadline"]) == moved


@pytest.mark.parametrize(
    ("deadline", "late"),
    [(None, timedelta(days=7)), (timedelta(seconds=14), timedelta(seconds=14))],
)
def test_a_link_is_too_old_after_the_deadline_or_seven_days(
    deadline: timedelta | None, late: timedelta
) -> None:
    now = datetime(2026, 3, 2, tzinfo=UTC)
    made = PersonalLink.of({"id": "r.1", "digest": "d"}, "ada", now=now)
    until = None if deadline is None else now + deadline

    assert PersonalLink.read(made.token(KEY), KEY) == made
    made.refuse_late(until, now=now + late - timedelta(seconds=1))
    with pytest.raises(Refusal, match="is too old"):
        made.refuse_late(until, now=now + late)


async def test_the_page_has_its_script_and_style(api: Api) -> None:
    for name, kind in (("page.js", "text/javascript"), ("page.css", "text/css")):
        response = await api.http.get(f"/links/{name}")
        assert response.headers["content-type"].startswith(kind)
