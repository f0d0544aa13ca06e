"""The file of rules: the meaning of its keys, and its faults."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import blocks
from receiver import hook, rules
from sample_moments import moment

from abeyance.errors import SettingsError
from abeyance.notifications.config import is_secret, load_notifications, unreachable_links
from abeyance.notifications.matching import receivers
from abeyance.settings import Settings

VARIABLES = {
    "LINK_KEY": "k" * 32,
    "SMTP_URL": "mailto://127.0.0.1",
    "FINANCE_URL": "json://127.0.0.1",
    "SLACK_URL": "json://127.0.0.1",
    "ONCALL_URL": "json://127.0.0.1",
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "notifications.yaml"


def faults(file: Path, text: str, *, delivers: bool = True) -> list[str]:
    """Return the faults of a file, one a line, without the line that names the file."""
    file.write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError) as raised:
        load_notifications(Settings(notifications=file), delivers=delivers)
    first, *listed = str(raised.value).splitlines()
    assert str(file) in first
    return [line.strip() for line in listed]


def test_the_file_of_the_page_is_understood(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = blocks("how-to/notifications.md", "yaml")
    file.write_text(block.text, encoding="utf-8")
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)

    loaded = load_notifications(Settings(notifications=file))

    assert loaded is not None
    assert loaded.events_of("refund")[-2:] == ("run.failed", "run.halted")
    assert loaded.events_of("other") == ("run.failed", "run.halted")
    assert loaded.members("group:finance") == ["ada"]
    assert loaded.principal("ada").capabilities == ("refunds:approve",)


def test_the_file_of_the_page_about_slack_is_understood_and_needs_no_worker(file: Path) -> None:
    (block,) = blocks("how-to/slack.md", "yaml")
    file.write_text(block.text, encoding="utf-8")

    loaded = load_notifications(Settings(notifications=file))

    assert loaded is not None
    assert loaded.events_of("refund") == ()


def test_the_file_of_the_page_about_asking_reaches_those_who_are_asked(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (block,) = blocks("how-to/asking-people.md", "yaml")
    file.write_text(block.text, encoding="utf-8")
    monkeypatch.setenv("SMTP_URL", VARIABLES["SMTP_URL"])
    loaded = load_notifications(Settings(notifications=file))
    assert loaded is not None
    come = {"at": "2026-03-01T09:00:00Z", "to": ["group:directors"]}
    question = {"assignees": ["group:managers"], "escalations": [come]}

    about = moment("interrupt.escalated", graph="payout", question=question)

    reached = [each.shown for each in receivers(loaded, about).found]
    assert reached == ["mail to group:managers", "mail to group:directors"]


def test_no_notifications_file_means_no_rules() -> None:
    assert load_notifications(Settings()) is None


def test_each_fault_is_named_with_its_line(file: Path) -> None:
    text = """\
links: {base: "ftp://example.com"}
rules:
  - when: {event: run.faild}
    to:
      - {webhook: "https://u:p@example.com", secret_env: HOOK_SECRET}
      - {webhok: "https://example.com"}
      - {assignees: fax}
  - {when: {event: []}, to: []}
"""
    found = dict(each.split(": ", 1) for each in faults(file, text)[:-2])
    address = "is not an address: write https://host/path, without a user"
    kinds = "webhook, apprise, apprise_env, assignees, slack"
    nobody = "is not an event that anybody can be notified of"
    known = (
        "a rule can name the facts in docs/reference/events.md, the end of a run as run.failed, and "
        "user.<name>"
    )

    assert found == {
        "line 1": f"'base': 'ftp://example.com' {address}",
        "line 3": f"'event': 'run.faild' {nobody} (did you mean 'run.failed'?): {known}",
        "line 5": f"'webhook': 'https://u:p@example.com' {address}",
        "line 6": f"to[1] should have one of the keys {kinds}, not {{'webhok': 'https://example.com'}}",
        "line 7": "'assignees' should be 'mail' or 'apprise', not 'fax'",
    }
    assert [each.split(": ")[:2] for each in faults(file, text)[-2:]] == [
        ["line 8", "'event'"],
        ["line 8", "'to'"],
    ]


def test_the_base_of_links_has_no_path_because_the_api_serves_none(file: Path) -> None:
    (fault,) = faults(file, 'links: {base: "https://example.com/abeyance"}\nrules: []\n')

    assert (
        "'https://example.com/abeyance' has more than a host: the API serves its pages at /"
        in fault
    )


@pytest.mark.parametrize(
    ("temporal", "public", "rule", "warns"),
    [
        ("temporal:7233", None, True, True),
        ("temporal:7233", None, False, False),
        ("temporal:7233", "https://abeyance.example.com", True, False),
        ("127.0.0.1:7233", None, True, False),
    ],
)
def test_rules_whose_links_nobody_else_can_open_are_warned_of(
    monkeypatch: pytest.MonkeyPatch,
    temporal: str,
    public: str | None,
    rule: bool,
    warns: bool,
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", temporal)
    file = rules(({"event": ["run.failed"]}, [hook("https://example.com")])) if rule else None

    warning = unreachable_links(file, Settings(public_url=public))

    assert ("ABEYANCE_PUBLIC_URL" in (warning or "")) is warns


def test_missing_or_invalid_variables_of_the_file_are_faults(
    file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("NO_SECRET", "not base64!")
    monkeypatch.setenv("SHORT", "short")
    monkeypatch.setenv("SHORT_SECRET", "c2VjcmV0")
    monkeypatch.setenv("NO_SERVICE", "no-service://password@host")
    text = """\
links: {base: "https://example.com", key_env: SHORT}
people:
  ada: {apprise_env: NOT_SET}
  "group:": {groups: [finance]}
rules:
  - when: {event: "*"}
    to:
      - {webhook: "https://example.com", secret_env: NO_SECRET}
      - {assignees: mail}
      - {apprise: "no scheme"}
      - {apprise_env: NOT_SET_EITHER}
      - {apprise_env: NO_SERVICE}
      - {apprise: "slakc://a/b/c"}
      - {webhook: "https://example.com", secret_env: SHORT_SECRET}
"""
    unknown = "apprise does not understand the address: see its documentation"
    assert faults(file, text) == [
        "line 1: SHORT needs at least 32 bytes",
        "line 3: the environment variable NOT_SET is not set",
        "line 4: 'group:' has no name after the colon: write group:<name>",
        "line 8: NO_SECRET is not a secret of a webhook: use whsec_ and 24 bytes in base64",
        "line 9: mail needs the key 'mail' of the file, with its server",
        "line 10: an address of apprise has a scheme, as in ntfy://topic",
        "line 11: the environment variable NOT_SET_EITHER is not set",
        f"line 12: the environment variable NO_SERVICE: {unknown}",
        f"line 13: {unknown}",
        "line 14: SHORT_SECRET is not a secret of a webhook: use whsec_ and 24 bytes in base64",
    ]
    assert "password" not in caplog.text


def test_assignees_are_notified_only_of_what_has_some(file: Path) -> None:
    text = """\
rules:
  - {when: {event: [run.failed, user.charged]}, to: [{assignees: apprise}]}
  - {when: {event: [run.failed, "interrupt.*"]}, to: [{assignees: apprise}]}
"""
    assert faults(file, text) == [
        "line 2: only questions have assignees: name an event such as interrupt.opened in 'when'"
    ]


def test_only_questions_are_posted_in_slack_and_a_member_of_it_is_one_person(file: Path) -> None:
    text = """\
people:
  ada: {slack: "Ada@example.com"}
  bob: {slack: "ada@example.com"}
rules:
  - {when: {event: run.failed}, to: [{slack: "#refunds"}]}
  - {when: {event: interrupt.opened}, to: [{slack: refunds}, {slack: assignees}, {slack: C012ABC}]}
"""
    assert faults(file, text) == [
        "line 6: 'slack' should be a channel (#refunds, or its id), or assignees, not 'refunds'",
    ]
    assert faults(file, text.replace("refunds}", "assignees}")) == [
        "line 2: two people have the Slack id Ada@example.com",
        "line 3: two people have the Slack id ada@example.com",
        "line 5: only questions are posted in Slack: name an event such as interrupt.opened in 'when'",
    ]


def test_a_run_announces_nothing_for_rules_of_slack_alone(file: Path) -> None:
    opened = {"event": "interrupt.opened"}
    in_slack = {"slack": "#refunds"}
    made = rules((opened, [in_slack]), ({"event": "run.failed"}, [in_slack, hook("https://e.com")]))

    assert made.events_of("refund") == ("run.failed",)


def test_a_process_that_does_not_deliver_needs_only_the_link_key(file: Path) -> None:
    text = """\
links: {base: "https://example.com", key_env: NO_KEY}
rules:
  - when: {event: "*"}
    to: [{webhook: "https://example.com", secret_env: NOT_SET}, {apprise_env: NOT_SET}]
"""
    assert faults(file, text, delivers=False) == [
        "line 1: the environment variable NO_KEY is not set"
    ]


@pytest.mark.parametrize("text", ["", "[1]", "rules: [", "\ufeff- a"])
def test_a_file_that_is_not_a_mapping_has_one_fault(file: Path, text: str) -> None:
    (fault,) = faults(file, text)
    assert "nodes" not in fault


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"missing\.yaml cannot be read: No such file"):
        load_notifications(Settings(notifications=tmp_path / "missing.yaml"))


def test_somebody_is_asked_by_name_or_by_a_group() -> None:
    file = rules(people={"ada": {"groups": ["finance"]}})

    assert file.is_asked("ada", ["bob", "group:finance"])
    assert file.is_asked("ada", ["ada"])
    assert not file.is_asked("ada", ["bob", "group:legal"])


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        (f"whsec_{'YWFh' * 8}", True),
        ("YWFh" * 8, True),
        (f"{'YWFh' * 7}YWE", False),
        ("whsec_", False),
        ("a!", False),
    ],
)
def test_a_secret_is_base64_of_24_bytes_or_more(text: str, is_one: bool) -> None:
    assert is_secret(text) is is_one
