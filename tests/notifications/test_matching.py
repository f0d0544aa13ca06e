"""The receivers that are notified of a moment."""

from __future__ import annotations

from typing import Any

import pytest
from receiver import hook, rules
from sample_moments import moment

from abeyance import wire
from abeyance.notifications.matching import receivers, target_of
from abeyance.notifications.moments import EVENTS, wants

HOOK = hook("https://example.com/hook?token=secret")


def reached(file: Any, **fields: Any) -> list[str]:
    return [each.shown for each in receivers(file, moment(**fields)).found]


@pytest.mark.parametrize(
    ("when", "is_about"),
    [
        ({}, True),
        ({"capability": "refunds:*"}, True),
        ({"capability": "*"}, True),
        ({"capability": ["payments:*", "refunds:approve"]}, True),
        ({"capability": "refunds:*:*"}, False),
        ({"capability": "payments:*"}, False),
        ({"graph": "refund"}, True),
        ({"graph": ["ref*", "other"]}, True),
        ({"graph": "r[e]fund"}, False),
        ({"labels": {"team": "finance"}}, True),
        ({"labels": {"team": "legal"}}, False),
        ({"labels": {"region": "de"}}, False),
        ({"event": "run.failed"}, False),
        ({"event": ["run.failed", "interrupt.*"]}, True),
    ],
)
def test_a_rule_is_about_what_fits_each_of_its_keys(when: dict[str, Any], is_about: bool) -> None:
    file = rules(({"event": "interrupt.opened", **when}, [HOOK]))

    assert bool(reached(file, labels={"team": "finance"})) is is_about


def test_an_event_without_a_question_has_the_capability_of_no_rule() -> None:
    file = rules(({"event": "*", "capability": "*"}, [HOOK]))

    assert not reached(file, event="run.failed")


def test_nobody_is_notified_that_a_notification_failed() -> None:
    assert not wants(["*", "notification.*"], "notification.failed")
    assert all(wants(["*"], event) for event in EVENTS)


def test_a_receiver_is_reached_once_and_shown_without_its_secrets() -> None:
    targets = [HOOK, {"apprise_env": "SLACK_URL"}, {"apprise": "ntfy://secret"}]
    file = rules(({"event": "*"}, targets), ({"event": "interrupt.*"}, targets))

    assert reached(file) == ["https://example.com/hook", "apprise $SLACK_URL", "apprise ntfy://..."]


PAST, FUTURE = "2020-01-01T00:00:00Z", "2100-01-01T00:00:00Z"
PEOPLE = {
    "ada": {"mail": "ada@example.com", "groups": ["finance"]},
    "bob": {"mail": "bob@example.com", "groups": ["finance", "legal"], "reads": {"team": "legal"}},
    "eve": {"apprise": "json://eve", "groups": ["legal"]},
    "group:legal": {"mail": "legal@example.com"},
    "group:finance": {"apprise": "json://finance"},
}


@pytest.mark.parametrize(
    ("by", "asked", "found"),
    [
        ("mail", {"assignees": ["ada"]}, ["mail to ada"]),
        ("mail", {"assignees": ["ada", "ada", "group:finance"]}, ["mail to ada"]),
        ("mail", {"assignees": ["group:legal"]}, ["mail to group:legal"]),
        ("apprise", {"assignees": ["group:finance"]}, ["apprise to group:finance"]),
        ("apprise", {"assignees": ["group:legal"]}, ["apprise to eve"]),
        ("mail", {"escalations": [{"at": PAST, "to": ["group:legal"]}]}, ["mail to group:legal"]),
        ("mail", {"escalations": [{"at": FUTURE, "to": ["group:legal"]}]}, []),
        ("mail", {}, []),
    ],
)
def test_asked_people_are_reached_by_their_entries(
    by: str, asked: dict[str, Any], found: list[str]
) -> None:
    file = rules(
        ({"event": "*"}, [{"assignees": by}]),
        people=PEOPLE,
        mail={"url_env": "SMTP", "from": "a@example.com"},
    )

    assert reached(file, question=asked) == found


def test_an_asked_person_without_an_address_is_unreachable() -> None:
    file = rules(({"event": "*"}, [{"assignees": "mail"}]), people=PEOPLE)
    asked = {"assignees": ["eve", "zoe", "group:nobody"]}

    found = receivers(file, moment(question=asked))

    assert [each.receiver for each in found.unreachable] == [
        "mail to eve",
        "mail to zoe",
        "mail to group:nobody",
    ]
    assert isinstance(found.unreachable[0], wire.Undelivered)


def test_a_person_who_may_not_read_a_run_is_not_notified() -> None:
    file = rules(({"event": "*"}, [{"assignees": "mail"}]), people=PEOPLE)

    assert not reached(file, question={"assignees": ["bob"]}, labels={"team": "finance"})
    assert reached(file, question={"assignees": ["bob"]}, labels={"team": "legal"})


def test_a_receiver_is_found_again_while_the_file_has_it() -> None:
    file = rules(({"event": "*"}, [HOOK]))
    (found,) = receivers(file, moment()).found

    assert target_of(file, found) is file.rules[0].to[0]
    assert target_of(rules(({"event": "*"}, [hook("https://example.com")])), found) is None
