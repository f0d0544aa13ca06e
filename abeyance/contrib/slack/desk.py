"""The effect of a run's event in Slack: the channels that get its question, the messages that are
updated, and the notes in threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from abeyance import views
from abeyance.contrib.slack import blocks
from abeyance.contrib.slack.blocks import Mention, escape
from abeyance.core.policy import TIMEOUT
from abeyance.core.terms import GROUP
from abeyance.filters import EventFilter
from abeyance.notifications.config import InSlack, Notifications, Person
from abeyance.notifications.matching import asked_of, fits
from abeyance.notifications.moments import ABOUT_A_QUESTION, Moment
from abeyance.records.slack_messages import Asked

_OF_RUNS: Final = (*sorted(views.TERMINAL_EVENTS), "run.rewound", "run.retried")
"""Events that may change every question of a run."""
HEARD: Final = EventFilter(types=(f"{ABOUT_A_QUESTION}*", *_OF_RUNS))
"""The events that may change something in Slack."""


def question_of(event: views.StreamEvent) -> str | None:
    """Return the question that an event is about; None if it is about all of its run."""
    id_ = event.data.get("id")
    return id_ if event.type.startswith(ABOUT_A_QUESTION) and isinstance(id_, str) else None


def receivers(file: Notifications, event: views.StreamEvent, asked: Asked) -> list[str]:
    """Return the receivers of a question by the rules that an event fits: channels, and people by the
    name of their entry, with `@`.
    """
    question = asked.question
    if question is None or not blocks.is_waiting(question):
        return []
    view: dict[str, Any] = question.model_dump(mode="json")
    moment = Moment(
        key="",
        event=event.type,
        time=event.time,
        run_id=event.run_id,
        graph=event.graph,
        status="",
        actor=event.actor,
        data=event.data,
        labels=dict(asked.labels),
        interrupt=view,
    )
    found = dict[str, None]()
    for rule in file.rules:
        if not fits(rule.when, moment):
            continue
        for target in rule.to:
            if isinstance(target, InSlack) and target.is_for_assignees:
                found |= dict.fromkeys(_people(file, asked_of(view, event.time), asked))
            elif isinstance(target, InSlack):
                found[target.slack] = None
    return [*found]


def _people(file: Notifications, names: Iterable[str], asked: Asked) -> Iterator[str]:
    for name in names:
        for each in file.members(name) if name.startswith(GROUP) else [name]:
            person = file.people.get(each)
            if person is not None and person.slack is not None and person.may_read(asked.labels):
                yield f"@{each}"


def mention_of(file: Notifications, name: str) -> str:
    """Return the name of a person in Slack: a mention, which calls them, if their id is known."""
    person = file.people.get(name)
    if person is None or person.slack is None or "@" in person.slack:
        return escape("its default" if name == TIMEOUT else name)
    return f"<@{person.slack}>"


def note(event: views.StreamEvent, asked: Asked, mention: Mention) -> str | None:
    """Return the note about an event in the thread of a question; None if there is none."""
    question = asked.question
    if question is None or not blocks.is_waiting(question):
        return None
    by = "" if event.actor is None else f" by {mention(event.actor)}"
    match event.type:
        case "interrupt.reminded":
            until = "" if question.deadline is None else f" until {blocks.when(question.deadline)}"
            who = ", ".join(map(mention, question.assignees))
            return f"Reminder{f' for {who}' if who else ''}: this waits for an answer{until}."
        case "interrupt.escalated":
            to = ", ".join(map(mention, event.data.get("to") or ())) or "more people"
            return f"Escalated: {to} may answer this now."
        case "interrupt.reassigned":
            return f"Given to {', '.join(map(mention, event.data.get('to') or ()))}{by}."
        case "interrupt.changed" | "interrupt.revised" | "interrupt.reopened":
            return f"Asked again{by}: an answer to what was shown before does not count."
        case _:
            return None


def person_of(file: Notifications, member: str, mail: str | None) -> tuple[str, Person] | None:
    """Return the person who is a member of Slack, by their id or mail; None if the file lacks them."""
    for name, person in file.people.items():
        known = None if name.startswith(GROUP) else person.slack
        if known == member or (known and mail and known.casefold() == mail.casefold()):
            return name, person
    return None
