"""Presses of buttons: the person who pressed, the modal that opens, and the answer that is given.

A press acts with the rights of the person in the file of rules, and on the content of its message: the
digest travels in the button. If a press does not count, only the person hears of it.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Self, TypeVar, get_args

from abeyance import commands, views
from abeyance.client import Client
from abeyance.contrib.slack import blocks, desk, forms
from abeyance.contrib.slack.forms import Answer, Decision, Faults
from abeyance.contrib.slack.web import Away, Slack, SlackFault
from abeyance.core.approvals import UNVOUCHED
from abeyance.core.json import sha256
from abeyance.core.text import truncate
from abeyance.errors import Code, Refusal, Unavailable
from abeyance.notifications.config import Notifications, Person
from abeyance.records import slack_messages

T = TypeVar("T")

_ACKNOWLEDGED_WITHIN: Final = 2.0
"""In seconds: Slack shows an error after three."""
_STALE: Final = (
    "Nothing was decided: the question has changed since this message was written. Its message is "
    "updated in a moment; look at it again."
)
_GONE: Final = "Nothing was decided: this question is not asked any more."
_AWAY: Final = (
    "The answer did not get through, as far as is known: the service cannot be reached now. Press again "
    "in a moment; if it did get through, it counts once."
)
_AGAIN: Final = (
    "Nothing was done yet: with your changes this is asked again. Look at its message, and approve it "
    "once more if it is right."
)
_UNKNOWN: Final = (
    "Nothing was decided: this service does not know who you are. Ask an operator to add you, with your "
    "id {member}, to `people` in the file of notifications."
)
_BUG: Final = (
    "It is not known whether your answer counts, because of a fault of this service. Its log says more. "
    "Look at the question in the inbox: press Open."
)
_ENDED: Final = frozenset(
    {
        *(Code.UNKNOWN_RUN, Code.UNKNOWN_INTERRUPT, Code.ERASED, Code.WITHDRAWN, Code.RUN_FINISHED),
    }
)
_ENTRY: Final = frozenset(
    {
        *(Code.INVALID_ANSWER, Code.READ_ONLY_FIELD, Code.DECISION_NOT_ALLOWED),
        *(Code.PAYLOAD_TOO_LARGE, Code.NOT_REMEMBERABLE, Code.GRANT_TOO_WIDE),
    }
)
_LONGEST: Final = 2_000
_logger = logging.getLogger("abeyance.slack")


@dataclass(frozen=True, slots=True, kw_only=True)
class Press:
    """A member's action on a question as it was shown. `once` sets it apart from other presses."""

    member: str
    channel: str
    question: str
    digest: str
    once: str

    @classmethod
    def of(cls, member: str, channel: str, about: Mapping[str, Any], once: str) -> Self:
        return cls(
            member=member,
            channel=channel,
            question=str(about["id"]),
            digest=str(about["digest"]),
            once=once,
        )

    @property
    def key(self) -> str:
        """The idempotency key of its answer: a press that Slack delivers twice counts once."""
        return f"slack-{sha256([self.question, self.digest, self.once]).rpartition(':')[2]}"


class _NotDecided(Exception):
    """The press does not count; the text says why. `is_entry`: the entered values are the reason."""

    def __init__(self, text: str, *, is_entry: bool = False) -> None:
        self.is_entry = is_entry
        super().__init__(text)


class Presses:
    """Answers presses as the people of a file. `team` is the workspace of people known by their mail."""

    def __init__(self, client: Client, slack: Slack, file: Notifications, *, team: str) -> None:
        self._client = client
        self._slack = slack
        self._file = file
        self._team = team
        self._has_mails = any("@" in (each.slack or "") for each in file.people.values())
        self._tasks = set[asyncio.Task[Any]]()
        self._failed = 0

    async def heard(self, payload: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Handle a payload of Slack, and return the body of the response; None if it is empty."""
        try:
            match payload.get("type"):
                case "block_actions":
                    for action in payload.get("actions") or ():
                        self._begin(self._pressed(payload, action))
                case "view_submission" if payload["view"]["callback_id"].startswith(blocks.PREFIX):
                    return await self._submitted(payload)
                case _:
                    pass
        except Exception as error:  # noqa: BLE001 Slack repeats a payload without a response
            self._note(error)
        return None

    async def close(self) -> None:
        """Wait for the presses under way."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _pressed(self, payload: Mapping[str, Any], action: Mapping[str, Any]) -> None:
        name = str(action.get("action_id"))
        if name == blocks.OPEN or not name.startswith(blocks.PREFIX):
            return
        place = payload.get("channel") or {}
        press = Press.of(
            str(payload["user"]["id"]),
            str(place.get("id") or payload["container"]["channel_id"]),
            json.loads(action["value"]),
            f"{name} {action.get('action_ts')}",
        )
        async with self._telling(press):
            who, question = await self._known(press)
            if name == blocks.APPROVE:
                await self._answer(press, who, Answer(answer=forms.plain_yes(question)))
            else:
                decision = name.removeprefix(blocks.PREFIX).removesuffix("...")
                await self._ask(press, question, _decision(decision), str(payload["trigger_id"]))

    async def _ask(
        self, press: Press, question: views.InterruptView, decision: Decision, trigger: str
    ) -> None:
        if question.status != "open":
            raise _NotDecided(_over(question))
        if forms.fields(question, decision) is None:
            raise _NotDecided("This is answered in the inbox: press Open.")
        about = {"id": press.question, "digest": press.digest, "channel": press.channel}
        view = forms.modal(question, decision, about)
        try:
            await self._slack.call("views.open", trigger_id=trigger, view=view)
        except (Away, SlackFault) as fault:
            _logger.warning("interrupt=%s | no form was opened: %s", press.question, fault)
            raise _NotDecided("Slack did not open the form: press again.") from fault

    async def _submitted(self, payload: Mapping[str, Any]) -> Mapping[str, Any] | None:
        view = payload["view"]
        about = json.loads(view["private_metadata"])
        once = f"{view['callback_id']} {view['id']} {sha256(view['state']['values'])}"
        press = Press.of(str(payload["user"]["id"]), str(about["channel"]), about, once)
        decision = view["callback_id"].removeprefix(blocks.PREFIX)
        is_closed = asyncio.Event()
        entering = self._begin(self._entered(press, decision, view["state"]["values"], is_closed))
        await asyncio.wait({entering}, timeout=_ACKNOWLEDGED_WITHIN)
        if not entering.done():
            is_closed.set()
        elif entering.exception() is None and (faults := entering.result()):
            return {"response_action": "errors", "errors": faults}
        return None

    async def _entered(
        self,
        press: Press,
        name: str,
        state: Mapping[str, Any],
        is_closed: asyncio.Event,
    ) -> Faults:
        """Answer with the entered values, and return the faults that the form shows while it is open."""
        faults = Faults()
        async with self._telling(press):
            decision = _decision(name)
            who, question = await self._known(press)
            first = [*(each.block for each in forms.fields(question, decision) or ()), forms.NOTE][
                0
            ]
            found = forms.entered(question, decision, state)
            if not isinstance(found, Answer):
                return found
            try:
                await self._answer(press, who, found)
            except _NotDecided as why:
                if not why.is_entry or is_closed.is_set():
                    raise
                faults[first] = str(why)
        return faults

    @asynccontextmanager
    async def _telling(self, press: Press) -> AsyncIterator[None]:
        """Tell the person who pressed why the press does not count, also if the reason is a bug."""
        try:
            yield
        except _NotDecided as why:
            await self._tell(press, str(why))
        except Exception as error:  # noqa: BLE001 whoever pressed would wait forever
            self._note(error, press)
            await self._tell(press, _BUG)

    async def _known(self, press: Press) -> tuple[str, views.InterruptView]:
        """Return the person who pressed, and the question, if it is still the one they saw. Raises
        _NotDecided.
        """
        name, person = await self._who(press)
        try:
            asked = await self._client.records.read(slack_messages.asked, press.question)
        except Unavailable as error:
            raise _NotDecided(_AWAY) from error
        if asked is None or asked.question is None or not person.may_read(asked.labels):
            raise _NotDecided(_GONE)
        question = asked.question
        if question.status == "open" and (question.digest or "") != press.digest:
            raise _NotDecided(_STALE)
        return name, question

    async def _who(self, press: Press) -> tuple[str, Person]:
        mail = None
        found = desk.person_of(self._file, press.member, None)
        if found is None and self._has_mails:
            mail = await self._mail_of(press.member)
            found = desk.person_of(self._file, press.member, mail)
        if found is None:
            raise _NotDecided(_UNKNOWN.format(member=press.member))
        return found

    async def _mail_of(self, member: str) -> str | None:
        """Return the mail of a member of our workspace; None for others, whose mail proves nothing."""
        try:
            user = (await self._slack.read("users.info", user=member))["user"]
        except SlackFault as fault:
            _logger.warning("member=%s | nobody knows who that is: %s", member, fault)
            return None
        if user.get("team_id") != self._team or user.get("deleted") or user.get("is_bot"):
            return None
        return (user.get("profile") or {}).get("email")

    async def _answer(self, press: Press, who: str, given: Answer) -> None:
        """Answer the question. Raises _NotDecided.

        A grant that it makes ends within a day, because nobody can be asked later for the person's
        rights. A person who sees only some runs cannot decide about others.
        """
        about: dict[str, Any] = {} if given.note is None else {"note": given.note}
        about["vouched_until"] = datetime.now(UTC) + UNVOUCHED
        if self._file.people[who].reads is not None:
            about["remember_only"] = "run"
        order = commands.Respond(
            responses={press.question: given.answer},
            digests={press.question: press.digest} if press.digest else {},
            principal=self._file.principal(who),
            key=press.key,
            **about,
        )
        run = self._client.run(slack_messages.run_of(press.question))
        try:
            receipts = await run.respond_to(order)
        except Refusal as refusal:
            raise _NotDecided(_refused(refusal), is_entry=refusal.code in _ENTRY) from refusal
        except Unavailable as error:
            _logger.warning("interrupt=%s | a press may not count: %s", press.question, error)
            raise _NotDecided(_AWAY) from error
        for receipt in receipts:
            if receipt.answered_by not in (None, who):
                raise _NotDecided(f"{receipt.answered_by} has answered this before you.")
            if receipt.asked_again:
                raise _NotDecided(_AGAIN)

    async def _tell(self, press: Press, text: str) -> None:
        """Send a text to the person who pressed, and to nobody else."""
        said = blocks.escape(truncate(text, _LONGEST))
        about = {"channel": press.channel, "user": press.member, "text": said}
        while True:
            try:
                await self._slack.call("chat.postEphemeral", **about)
                return
            except Away as away:
                await asyncio.sleep(away.pause)
            except SlackFault as fault:
                _logger.warning("member=%s | they were not told %r: %s", press.member, text, fault)
                return

    def _begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end)
        return task

    def _end(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._note(error)

    def _note(self, error: BaseException, press: Press | None = None) -> None:
        self._failed += 1
        _logger.error(
            "code=%s interrupt=%s member=%s failed=%d | a press was not handled, because of a bug",
            type(error).__name__,
            "-" if press is None else press.question,
            "-" if press is None else press.member,
            self._failed,
            exc_info=error,
        )


def _refused(refusal: Refusal) -> str:
    if refusal.code is Code.STALE:
        return _STALE
    return _GONE if refusal.code in _ENDED else f"Nothing was decided: {refusal.message}"


def _over(question: views.InterruptView) -> str:
    by = "" if question.answered_by is None else f", by {question.answered_by}"
    return f"Nothing was decided: the question is {question.status} already{by}."


def _decision(text: str) -> Decision:
    found: Decision | None = next((each for each in get_args(Decision) if each == text), None)
    if found is None:
        raise _NotDecided(_STALE)
    return found
