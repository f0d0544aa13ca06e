"""Personal links: a page for one question and one person, who need not sign in.

A caller needs only the token in the address, which allows nothing else. Opening the page does not answer
the question, because programs open the links in mails; the answer is a separate call.
"""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from string import Template
from typing import Annotated, Final, TypeAlias
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from fastapi import Path as PathParameter
from pydantic import Field, JsonValue

from abeyance import commands, views, wire
from abeyance.api import pages
from abeyance.api.dependencies import Backend, BackendDep
from abeyance.api.inbox import PATH as INBOX
from abeyance.api.inbox import prompts
from abeyance.api.problems import PROBLEMS, retry_header
from abeyance.api.routers.runs import PICTURES, sent
from abeyance.api.sessions import SIGN_IN
from abeyance.client.run import TemporalRun
from abeyance.core.json import Json, sha256
from abeyance.core.ledger import Vote
from abeyance.core.policy import TIMEOUT
from abeyance.core.text import visible
from abeyance.errors import Code, Refusal, Unavailable
from abeyance.notifications import links
from abeyance.notifications.config import Notifications
from abeyance.notifications.links import PATH, PersonalLink, link_expired
from abeyance.notifications.matching import asked_of
from abeyance.storage import run_files

router = APIRouter(include_in_schema=False)

_FOLDER: Final = Path(__file__).parent
_PAGE: Final = Template((_FOLDER / "page.html").read_text(encoding="utf-8"))
_ROBOTS: Final = {"X-Robots-Tag": "noindex"}
_ANSWERED: Final = frozenset({"answered", "held"})
_VOID: Final = {
    "expired": "leads to a question whose deadline has passed",
    "cancelled": "leads to a question that was withdrawn",
    "superseded": "leads to a question that was withdrawn",
}
_LOST: Final = {
    Code.STALE: "leads to a question that shows something else now",
    Code.WITHDRAWN: _VOID["cancelled"],
    Code.EXPIRED: _VOID["expired"],
    Code.UNKNOWN_RUN: "leads to a run that is gone",
    Code.UNKNOWN_INTERRUPT: "leads to a question that is gone",
    Code.ERASED: "leads to a run that was erased",
}
"""The state of the link after a refusal of the run."""


class LinkAnswer(wire.Request):
    """The answer to the question of a link. null is a valid answer."""

    response: JsonValue
    note: str | None = Field(default=None, max_length=2_000)


Token: TypeAlias = Annotated[str, PathParameter(max_length=4_000)]


pages.serve(router, f"{PATH}/page.js", (_FOLDER / "page.js").read_text(encoding="utf-8"))
pages.serve(router, f"{PATH}/page.css", pages.with_common_style(_FOLDER / "page.css"))


@router.get(f"{PATH}/{{token}}")
async def read(token: Token, request: Request, backend: BackendDep) -> Response:
    """Serve the page with the question, or with the reason why the link is void; on request as JSON."""
    wants_json = "application/json" in request.headers.get("accept", "")
    try:
        link, _, question = await _opened(token, backend)
    except Refusal as refusal:
        if wants_json:
            raise
        return _void(refusal.code, refusal.message)
    except Unavailable as error:
        if wants_json:
            raise
        page = _void(
            Code.UNAVAILABLE, "The question cannot be read now: open the link again later."
        )
        page.headers.update(retry_header(error.retry_after))
        return page
    if wants_json:
        headers = {**pages.HEADERS, **_ROBOTS}
        return Response(question.model_dump_json(), media_type="application/json", headers=headers)
    return _page(token, link, question)


@router.get(f"{PATH}/{{token}}/files/{{file_id}}")
async def read_file(token: Token, file_id: str, backend: BackendDep) -> Response:
    """Retrieve a file that the question shows, and no other of its run."""
    link, _, question = await _opened(token, backend)
    run = _run(link, backend)
    if file_id not in {run_files.id_of(each) for each in _files(question)}:
        raise Refusal(
            Code.NOT_FOUND,
            "The question of this link shows no such file: take the address from its page.",
            run_id=run.run_id,
        )
    response = sent(await run.run_file(file_id))
    response.headers.update({"Referrer-Policy": "no-referrer", **_ROBOTS})
    return response


@router.post(f"{PATH}/{{token}}")
async def answer(token: Token, body: LinkAnswer, backend: BackendDep) -> views.Receipts:
    """Answer the question as the person of the link. The same answer again gets the first receipt."""
    link, file, question = await _opened(token, backend, sha256(body.response))
    _refuse_another_vote(link, question, body.response)
    command = commands.Respond(
        responses={question.id: body.response},
        note=body.note,
        digests={question.id: link.digest},
        principal=file.principal(link.person),
        remember_only="nothing",
    )
    try:
        # A holder of the link does not get what others delegated to the person.
        receipts = await _run(link, backend).respond_to(command, as_delegate=False)
    except Refusal as refusal:
        by = refusal.details.get("answered_by", link.person)
        if refusal.code is Code.ALREADY_ANSWERED and by != link.person:
            raise link_expired("leads to a question that somebody else has answered") from refusal
        if (why := _LOST.get(refusal.code)) is not None:
            raise link_expired(why) from refusal
        raise
    if any(receipt.answered_by != link.person for receipt in receipts):
        # Somebody else gave the same answer a moment ago.
        raise link_expired("leads to a question that somebody else has answered")
    return views.Receipts(receipts=receipts)


def _refuse_another_vote(link: PersonalLink, question: views.InterruptView, answer: Json) -> None:
    """Raise `already_answered` if the person has voted otherwise: a link answers once."""
    vote = _vote(link, question)
    if vote is not None and vote.answer_sha256 != sha256(answer):
        raise Refusal(
            Code.ALREADY_ANSWERED,
            f"{link.person!r} has voted on {question.name!r}, and a link answers once: sign in to vote "
            "otherwise.",
            interrupt_id=question.id,
            answered_by=vote.by,
        )


def _vote(link: PersonalLink, question: views.InterruptView) -> Vote | None:
    return next((each for each in question.votes if each.by == link.person), None)


async def _opened(
    token: str, backend: Backend, answer_sha256: str | None = None
) -> tuple[PersonalLink, Notifications, views.InterruptView]:
    """Return a valid link, the notifications file, and the question of the link. `answer_sha256` is the
    hash of the person's answer.

    Raises `link_expired`, and Unavailable if the service cannot tell now whether the link is valid.
    """
    file = backend.notifications
    key = None if file is None else links.key_of(file)
    if file is None or key is None:
        raise link_expired("was not made by this service, which makes none")
    link = PersonalLink.read(token, key)
    if (person := file.people.get(link.person)) is None:
        raise link_expired("is for somebody whom this service no longer knows")
    run = _run(link, backend)
    try:
        if person.reads is not None and not person.may_read((await run.view()).labels):
            raise link_expired("leads to a run that you may not see")
        question = await run.interrupt(link.question)
    except Refusal as refusal:
        if (why := _LOST.get(refusal.code)) is None:
            raise
        raise link_expired(why) from refusal
    if question is None:
        raise link_expired(_LOST[Code.UNKNOWN_INTERRUPT])
    if question.degraded:
        # Such a view lacks the votes, and the facts that a person decides by.
        raise Unavailable(f"the question {question.id!r} cannot be read in full: no worker answers")
    _check(link, file, question, answer_sha256)
    return link, file, question


def _run(link: PersonalLink, backend: Backend) -> TemporalRun:
    return backend.connection.client.run(link.question.rpartition(".")[0])


def _check(
    link: PersonalLink,
    file: Notifications,
    question: views.InterruptView,
    answer_sha256: str | None,
) -> None:
    """Raise `link_expired` if the question is not as it was when the link was made."""
    # The deadline answered the question with its default.
    status = "expired" if question.answered_by == TIMEOUT else question.status
    if (why := _VOID.get(status)) is not None:
        raise link_expired(why)
    link.refuse_late(question.deadline, now=datetime.now(UTC))
    if question.status in _ANSWERED:
        if link.person not in {question.answered_by, *(vote.by for vote in question.votes)}:
            raise link_expired("leads to a question that somebody else has answered")
    elif (vote := _vote(link, question)) is not None and vote.answer_sha256 == answer_sha256:
        # Accept the repeat of a vote, because the vote itself may have changed the question.
        return
    elif question.digest != link.digest:
        raise link_expired(_LOST[Code.STALE])
    elif not file.is_asked(
        link.person, asked_of(question.model_dump(mode="json"), datetime.now(UTC))
    ):
        raise link_expired("leads to a question that was given to others")


def _files(question: views.InterruptView) -> list[Mapping[str, str]]:
    """Return the references to the files that a question shows, each once."""
    shown = [question.reason, question.payload, question.preview]
    return [*{run_files.id_of(each): each for each in run_files.carried(shown)}.values()]


def _file(token: str, file: Mapping[str, str]) -> str:
    address = html.escape(f"{PATH}/{token}/files/{run_files.id_of(file)}")
    name = _text(file.get("name", "file"))
    if file.get("type") in PICTURES:
        return f"<p><img src='{address}' alt='{name}'></p>"
    return f"<p><a href='{address}' download='{name}'>{name}</a></p>"


def _claimed(link: PersonalLink, question: views.InterruptView) -> str:
    """Return a sentence about another person who has claimed the question; empty if nobody has."""
    claim = question.claim
    if claim is None or link.person in claim.people or claim.until <= datetime.now(UTC):
        return ""
    return (
        f"{claim.by} has claimed this question until {claim.until:%Y-%m-%d %H:%M} UTC, and answers it. "
        "Until then nobody else can answer it."
    )


def _page(token: str, link: PersonalLink, question: views.InterruptView) -> Response:
    is_open = question.status not in _ANSWERED
    shown = {
        "Asked in": question.graph,
        "Answer until": question.deadline and f"{question.deadline:%Y-%m-%d %H:%M} UTC",
        "You are": link.person,
    }
    contents = {
        "Reason": question.reason,
        "What would happen": question.preview,
        "Details": question.payload,
        "Votes": {vote.by: vote.answer for vote in question.votes} or None,
    }
    details = "".join(
        f"<h2>{title}</h2>{_value(value)}" for title, value in contents.items() if value is not None
    )
    if files := _files(question):
        details += f"<h2>Files</h2>{''.join(_file(token, each) for each in files)}"
    when = "" if question.answered_at is None else f" at {question.answered_at:%Y-%m-%d %H:%M} UTC"
    status = _claimed(link, question) if is_open else f"You have answered this{when}."
    return _filled(
        title=_text(question.name),
        prompt=prompts.html_of(question) or _plain(question.prompt),
        body=f"{_value({name: value for name, value in shown.items() if value})}{details}",
        status=_text(status),
        question=html.escape(question.model_dump_json()) if is_open else "",
        sign_in=_sign_in(question.id),
    )


def _void(why: Code, message: str) -> Response:
    """Return the page of a void link, which shows no question and offers to sign in."""
    status, title = PROBLEMS[why]
    return _filled(
        title=_text(title),
        prompt=_plain(message),
        body="",
        status="",
        question="",
        sign_in=_sign_in(None),
        code=status,
    )


def _sign_in(question: str | None) -> str:
    place = INBOX if question is None else f"{INBOX}#{question}"
    return f"{SIGN_IN}?next={quote(place, safe='')}"


def _filled(*, code: int = 200, **parts: str) -> Response:
    response = pages.sent(_PAGE.substitute(parts), "html", code)
    response.headers.update(_ROBOTS)
    return response


def _plain(text: str) -> str:
    return f"<p class='plain'>{_text(text)}</p>"


def _value(value: Json) -> str:
    """Return a value as a part of a page: each entry of an object in a line of its own."""
    if isinstance(value, Mapping) and value:
        lines = (f"<dt>{_text(name)}</dt><dd>{_value(each)}</dd>" for name, each in value.items())
        return f"<dl>{''.join(f'<div>{line}</div>' for line in lines)}</dl>"
    text = _text(value)
    return f"<pre tabindex='0'>{text}</pre>" if "\n" in text else text


def _text(value: object) -> str:
    """Return a value as text of a page: nothing in it is markup, and nothing is invisible."""
    text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    return html.escape(visible(text))
