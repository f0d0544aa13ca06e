"""The file of rules (`ABEYANCE_NOTIFICATIONS`): its form, and its faults, each with its line."""

from __future__ import annotations

import os
import re
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    ValidationError,
)

from abeyance.core.policy import ALL_RUNS, Principal, ReadRights
from abeyance.core.terms import GROUP
from abeyance.errors import SettingsError
from abeyance.notifications.moments import ABOUT_A_QUESTION, EVENTS, OWN, matches
from abeyance.notifications.notifier import notifier
from abeyance.schemas.forms import Form, Written
from abeyance.settings import Settings
from abeyance.storage.backends import is_on_this_machine, temporal_address
from abeyance.util import is_loopback
from abeyance.yaml import source
from abeyance.yaml.source import Faults, Place

_SHORTEST_KEY: Final = 32
"""In bytes: a key for HS256 must be at least as long as the hash."""
_SHORTEST_SECRET: Final = 24
"""In bytes, as Standard Webhooks asks for."""
_VARIABLE: Final = r"[A-Za-z_][A-Za-z0-9_]*"
_MEMBER: Final = r"[UW][A-Z0-9]{2,}|[^\s@,]+@[^\s@,]+"
_ASKED_IN_SLACK: Final = "assignees"
_IN_SLACK: Final = rf"{_ASKED_IN_SLACK}|#[^\s#@]+|[CG][A-Z0-9]{{2,}}"
_SCHEMES: Final = ("http", "https")
_NOT_UNDERSTOOD: Final = "apprise does not understand the address: see its documentation"


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _known_event(pattern: str) -> str:
    if pattern.startswith(OWN) or any(matches(pattern, event) for event in EVENTS):
        return pattern
    nearest = get_close_matches(pattern, EVENTS, n=1, cutoff=0.8)
    meant = f" (did you mean {nearest[0]!r}?)" if nearest else ""
    raise ValueError(
        f"{pattern!r} is not an event that anybody can be notified of{meant}: a rule can name the facts "
        "in docs/reference/events.md, the end of a run as run.failed, and user.<name>"
    )


def _url(value: str) -> str:
    try:
        parts = urlsplit(value)
        # A port that is not a number raises here.
        is_url = parts.scheme in _SCHEMES and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_url = False
    if not is_url or parts.username is not None or re.search(r"[\s\x00-\x1f\x7f]", value):
        raise ValueError(f"{value!r} is not an address: write https://host/path, without a user")
    return value


def _base(value: str) -> str:
    if urlsplit(value).path.strip("/") or {"?", "#"} & {*value}:
        message = (
            f"{value!r} has more than a host: the API serves its pages at /, so write https://host"
        )
        raise ValueError(message)
    return value.rstrip("/")


Variable: TypeAlias = Annotated[str, Written(_VARIABLE, "the name of a variable")]
"""The name of an environment variable that holds a secret."""
Name: TypeAlias = Annotated[str, Field(min_length=1, max_length=1_000)]
Address: TypeAlias = Annotated[str, Written(r"[^\s@,]+@[^\s@,]+", "an address of mail")]
Url: TypeAlias = Annotated[str, AfterValidator(_url)]
Events: TypeAlias = Annotated[
    list[Annotated[str, AfterValidator(_known_event)]],
    BeforeValidator(_listed),
    Field(min_length=1),
]
Patterns: TypeAlias = Annotated[list[Name], BeforeValidator(_listed), Field(min_length=1)]


class Links(Form):
    """`base` is the API's address for people; the variable `key_env` holds the key of personal links."""

    base: Annotated[str, AfterValidator(_url), AfterValidator(_base)]
    key_env: Variable | None = None


class Mail(Form):
    """The mail server, whose URL is in the variable `url_env`, and the `sender` of all mail."""

    url_env: Variable
    sender: Address = Field(alias="from")


class Person(Form):
    """The person or group behind a name or a `group:<name>`: their addresses, and their rights by a
    personal link or a press in Slack.

    Without `reads` they get notices of all runs, else only of runs that have all these labels.
    """

    mail: Address | None = None
    apprise: Name | None = None
    apprise_env: Variable | None = None
    slack: Annotated[str, Written(_MEMBER, "the id of a member of Slack, or a mail")] | None = None
    groups: list[Name] = Field(default_factory=list)
    capabilities: list[Name] = Field(default_factory=list)
    reads: dict[str, Annotated[list[str], BeforeValidator(_listed)]] | None = None

    def may_read(self, labels: Mapping[str, str]) -> bool:
        """Return whether this person may see a run with these labels."""
        return (ALL_RUNS if self.reads is None else ReadRights.of(self.reads)).may_read(labels)


class Webhook(Form):
    """Post to an address. One that is not on the public internet needs `allow_private`."""

    webhook: Url
    secret_env: Variable
    format: Literal["standard", "cloudevents"] = "standard"
    allow_private: bool = False


class Apprise(Form):
    """Send by apprise, to a URL in the file or in an environment variable."""

    apprise: Name | None = None
    apprise_env: Variable | None = None


class Assignees(Form):
    """Send to everybody who is asked, with the link to the inbox or a personal link."""

    assignees: Literal["mail", "apprise"]
    link: Literal["inbox", "personal"] = "inbox"


class InSlack(Form):
    """Post in Slack, in a channel or to everybody who is asked. `abeyance slack` does this."""

    slack: Annotated[str, Written(_IN_SLACK, "a channel (#refunds, or its id), or assignees")]

    @property
    def is_for_assignees(self) -> bool:
        """Whether everybody who is asked gets their own message."""
        return self.slack == _ASKED_IN_SLACK


def _kind(value: Any) -> str | None:
    keys = {*value} if isinstance(value, Mapping) else set()
    named = {"webhook": "a webhook", "assignees": "those asked", "apprise": "by apprise"}
    named |= {"apprise_env": "by apprise", "slack": "in Slack"}
    return next((kind for key, kind in named.items() if key in keys), None)


Target: TypeAlias = Annotated[
    Annotated[Webhook, Tag("a webhook")]
    | Annotated[Apprise, Tag("by apprise")]
    | Annotated[Assignees, Tag("those asked")]
    | Annotated[InSlack, Tag("in Slack")],
    Discriminator(
        _kind,
        custom_error_type="no_target",
        custom_error_message="should have one of the keys webhook, apprise, apprise_env, assignees, "
        "slack",
    ),
]


class When(Form):
    """The condition of a rule: each key that is there has to fit. Patterns may have `*`."""

    event: Events
    capability: Patterns | None = None
    graph: Patterns | None = None
    labels: dict[str, str] = Field(default_factory=dict)


class Rule(Form):
    """A rule: who is notified of what."""

    when: When
    to: list[Target] = Field(min_length=1)

    @property
    def is_delivered(self) -> bool:
        """Whether workers deliver notices by this rule: `abeyance slack` posts those in Slack."""
        return any(not isinstance(target, InSlack) for target in self.to)


class Notifications(Form):
    """The whole file."""

    links: Links | None = None
    mail: Mail | None = None
    people: dict[Name, Person] = Field(default_factory=dict)
    rules: list[Rule] = Field(default_factory=list)

    @property
    def is_delivered(self) -> bool:
        """Whether workers deliver notices. A file without rules counts: rules may be added later."""
        return not self.rules or any(rule.is_delivered for rule in self.rules)

    def events_of(self, graph: str) -> tuple[str, ...]:
        """Return the patterns of events for which workers deliver notices about runs of a graph."""
        found = (
            event
            for rule in self.rules
            if rule.is_delivered
            and (rule.when.graph is None or any(matches(each, graph) for each in rule.when.graph))
            for event in rule.when.event
        )
        return tuple(dict.fromkeys(found))

    def members(self, name: str) -> list[str]:
        """Return the names of the people in a group, which is given as `group:<name>`."""
        group = name.removeprefix(GROUP)
        return [each for each, person in self.people.items() if group in person.groups]

    def principal(self, name: str) -> Principal:
        """Return the principal of a person who answers by a link or in Slack. Raises KeyError."""
        person = self.people[name]
        return Principal(
            subject=name, capabilities=tuple(person.capabilities), groups=tuple(person.groups)
        )

    def is_asked(self, name: str, asked: Iterable[str]) -> bool:
        """Return whether a person is among those who are asked, by name or by a group."""
        groups = {f"{GROUP}{group}" for group in self.people[name].groups}
        return any(each == name or each in groups for each in asked)


def links_base(file: Notifications | None, settings: Settings) -> str:
    """Return the address at which people reach the API, from the file or else the settings."""
    if file is not None and file.links is not None:
        return file.links.base
    return settings.public_url or settings.url


def unreachable_links(file: Notifications | None, settings: Settings) -> str | None:
    """Return the warning that the links in notifications lead to this machine, though Temporal is
    elsewhere; None if they do not.
    """
    if file is None or not file.rules:
        return None
    base = links_base(file, settings)
    if not is_loopback(urlsplit(base).hostname or "") or is_on_this_machine(temporal_address()):
        return None
    return (
        f"the links to questions lead to {base}, which only this machine reaches: set "
        "ABEYANCE_PUBLIC_URL for workers too"
    )


def load_notifications(settings: Settings, *, delivers: bool = True) -> Notifications | None:
    """Load the file of rules that the settings name; return None if they name no file.

    A worker `delivers`, and needs every variable in the file; other processes need the key of links.
    Raises SettingsError with all faults, each with its line.
    """
    path = settings.notifications
    return None if path is None else _loaded(path, delivers=delivers)


def _loaded(path: Path, *, delivers: bool) -> Notifications:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise SettingsError(
            f"the notifications file {path} cannot be read: {error.strerror}"
        ) from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise _faulty(path, [f"line {line}: not UTF-8: {error.reason}"]) from error
    document = source.read(text)
    faults = Faults(document)
    loaded = None
    if not isinstance(document.data, dict):
        if not document.faults:
            faults.note((), "the document is not a mapping: write at least the key 'rules'")
    else:
        try:
            loaded = Notifications.model_validate(document.data)
        except ValidationError as error:
            faults.misfits(error)
    if loaded is not None:
        for place, text in _faults_of(loaded, delivers=delivers):
            faults.note(place, text)
    if loaded is None or faults.listed():
        raise _faulty(path, faults.listed())
    return loaded


def _faulty(path: Path, faults: list[str]) -> SettingsError:
    listed = "\n".join(f"  {fault}" for fault in faults)
    return SettingsError(f"the notifications file {path} cannot be used:\n{listed}")


_Fault: TypeAlias = tuple[Place, str]


def _faults_of(file: Notifications, *, delivers: bool) -> Iterator[_Fault]:
    """Yield the faults of a file that has the right form."""
    if file.links is not None and file.links.key_env is not None:
        place: Place = ("links", "key_env")
        yield from _variable_faults(place, file.links.key_env)
        key = os.environ.get(file.links.key_env, "")
        if key and len(key.encode()) < _SHORTEST_KEY:
            yield place, f"{file.links.key_env} needs at least {_SHORTEST_KEY} bytes"
    if delivers and file.mail is not None:
        yield from _variable_faults(("mail", "url_env"), file.mail.url_env)
    for name, person in file.people.items():
        if name == GROUP:
            yield ("people", name), f"{name!r} has no name after the colon: write {GROUP}<name>"
        if delivers:
            yield from _apprise_faults(("people", name), person)
    members = [(name, each.slack.casefold()) for name, each in file.people.items() if each.slack]
    for name, member in members:
        if member in [other for each, other in members if each != name]:
            yield (
                ("people", name, "slack"),
                f"two people have the Slack id {file.people[name].slack}",
            )
    for number, rule in enumerate(file.rules):
        for position, target in enumerate(rule.to):
            place = ("rules", number, "to", position)
            match target:
                case Webhook() if delivers:
                    yield from _secret_faults((*place, "secret_env"), target.secret_env)
                case Apprise():
                    yield from _apprise_faults(place, target, delivers=delivers)
                case Assignees():
                    yield from _unasked(place, "assignees", rule.when)
                    yield from _assignee_faults(place, target, file)
                case InSlack():
                    yield from _unasked(place, "slack", rule.when)
                case Webhook():
                    pass
    if delivers and file.is_delivered and (missing := notifier().missing()) is not None:
        yield ("rules",), missing


def _unasked(place: Place, key: str, when: When) -> Iterator[_Fault]:
    about_questions = [event for event in EVENTS if event.startswith(ABOUT_A_QUESTION)]
    if not any(matches(each, event) for each in when.event for event in about_questions):
        what = "have assignees" if key == "assignees" else "are posted in Slack"
        yield (
            (*place, key),
            f"only questions {what}: name an event such as {about_questions[0]} in 'when'",
        )


def _assignee_faults(place: Place, target: Assignees, file: Notifications) -> Iterator[_Fault]:
    if target.assignees == "mail" and file.mail is None:
        yield (*place, "assignees"), "mail needs the key 'mail' of the file, with its server"
    if target.link == "personal" and (file.links is None or file.links.key_env is None):
        yield (*place, "link"), "personal links need 'links' with a 'key_env'"


def _apprise_faults(
    place: Place, entry: Person | Apprise, *, delivers: bool = True
) -> Iterator[_Fault]:
    if entry.apprise is not None and entry.apprise_env is not None:
        yield (*place, "apprise_env"), "give either 'apprise' or 'apprise_env'"
    if entry.apprise is not None and "://" not in entry.apprise:
        yield (*place, "apprise"), "an address of apprise has a scheme, as in ntfy://topic"
    elif delivers and entry.apprise is not None and not notifier().understands(entry.apprise):
        yield (*place, "apprise"), _NOT_UNDERSTOOD
    if delivers and entry.apprise_env is not None:
        yield from _variable_faults((*place, "apprise_env"), entry.apprise_env)
        if (url := os.environ.get(entry.apprise_env)) and not notifier().understands(url):
            text = f"the environment variable {entry.apprise_env}: {_NOT_UNDERSTOOD}"
            yield (*place, "apprise_env"), text


def _variable_faults(place: Place, name: str) -> Iterator[_Fault]:
    if not os.environ.get(name):
        yield place, f"the environment variable {name} is not set"


def _secret_faults(place: Place, name: str) -> Iterator[_Fault]:
    secret = os.environ.get(name)
    if not secret:
        yield from _variable_faults(place, name)
    elif not is_secret(secret):
        yield (
            place,
            f"{name} is not a secret of a webhook: use whsec_ and {_SHORTEST_SECRET} bytes in base64",
        )


def is_secret(text: str) -> bool:
    """Return whether a text is a webhook secret: 24 bytes or more in base64, perhaps after `whsec_`."""
    bare = text.removeprefix("whsec_")
    try:
        secret = b64decode(bare + "=" * (-len(bare) % 4), validate=True)
    except ValueError:
        return False
    return len(secret) >= _SHORTEST_SECRET
