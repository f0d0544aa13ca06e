"""`abeyance doctor`: examine a deployment, one line for each finding, with its remedy."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal

import typer

from abeyance.cli.api_call import PrintJson
from abeyance.cli.errors import ErrorText, ExitCode
from abeyance.cli.formatting import readable
from abeyance.errors import AbeyanceError, RecordsUnavailable, Refusal, SettingsError, Unavailable

if TYPE_CHECKING:
    from abeyance.client import Client
    from abeyance.settings import Settings
    from abeyance.views import InterruptView

examination = typer.Typer()

_RETENTION: Final = timedelta(days=30)
_OFFSET: Final = timedelta(seconds=5)
_ATTRIBUTES: Final = "search attributes"
_DELIVERY: Final = "notifications"
_OVERDUE: Final = timedelta(minutes=5)
_PAGE: Final = 1_000
_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """The finding of a check. `remedy` is what an operator can do about it."""

    check: str
    status: Literal["ok", "warn", "fail"]
    text: str
    remedy: str | None = None


Check = Callable[["Client", "Settings"], Awaitable[Finding]]


@examination.command(cls=ErrorText, rich_help_panel="Operation")
def doctor(*, as_json: PrintJson = False) -> None:
    """Examine this deployment: Temporal, its namespace, workers, runs, storage and keys.

    Prints one line for each check, and what to do. Run it with the settings of a worker or an API. The
    exit code is 1 if a check fails; warnings do not change it.
    """
    from abeyance.settings import load_settings

    async def examined() -> list[Finding]:
        found = []
        async for finding in examine(load_settings()):
            found.append(finding)
            if not as_json:
                remedy = f": {finding.remedy}" if finding.remedy else ""
                line = f"{finding.status:<5} {finding.check:<18} {finding.text}{remedy}"
                typer.echo(" ".join(readable(line).split("\n")))
        return found

    found = asyncio.run(examined())
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in found]))
    if any(finding.status == "fail" for finding in found):
        raise typer.Exit(ExitCode.FAILED)


async def examine(settings: Settings) -> AsyncIterator[Finding]:
    """Yield the findings in the order of the checks. Without Temporal most checks are left out."""
    from abeyance.client import Client

    yield _settings()
    if settings.tokens_file is not None:
        yield _tokens(settings)
    if settings.oidc_issuer is not None:
        yield await _sign_in(settings)
    if settings.notifications is not None:
        rules = _rules(settings)
        yield rules
        if rules.status == "fail":
            # The other checks do without the file.
            settings = settings.model_copy(update={"notifications": None})
        elif settings.slack_bot_token is not None:
            yield await _slack(settings)
    try:
        yield await _storage(settings)
        yield await _records(settings)
        yield _keys(settings)
        client = await Client.connect(settings=settings)
    except AbeyanceError as error:
        yield Finding("connection", "fail", str(error))
        return
    address = client.temporal.service_client.config.target_host
    yield Finding("connection", "ok", f"Temporal answers at {address}")
    if (lost := await _lost(client)) is not None:
        yield lost
    failed = set()
    for name, check in _CHECKS.items():
        if name == _DELIVERY and _ATTRIBUTES in failed:
            # Temporal finds no workflow by attributes that it does not have.
            continue
        try:
            finding = await check(client, settings)
        except AbeyanceError as error:
            text = error.message if isinstance(error, Refusal) else str(error)
            finding = Finding(name, "fail", text)
        if finding.status == "fail":
            failed.add(name)
        yield finding


def _settings() -> Finding:
    from abeyance.settings import unknown_settings

    if unknown := unknown_settings(os.environ):
        return Finding("settings", "warn", "; ".join(unknown))
    return Finding("settings", "ok", "all variables are known")


def _tokens(settings: Settings) -> Finding:
    from abeyance.token_file import read_grants

    path = settings.tokens_file
    assert path is not None  # noqa: S101  (checked by the caller)
    try:
        grants = read_grants(path)
    except AbeyanceError as error:
        return Finding("tokens", "fail", str(error))
    if stat.S_IMODE(path.stat().st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
        return Finding(
            "tokens", "warn", f"others than its owner may open {path}", f"chmod 600 {path}"
        )
    return Finding("tokens", "ok", f"{len(grants)} in {path}")


async def _sign_in(settings: Settings) -> Finding:
    from abeyance.api.oidc import OidcClient

    try:
        provider = OidcClient.read(settings, None)
        assert provider is not None  # noqa: S101  (checked by the caller)
        await provider.reach()
    except Unavailable:
        return Finding(
            "sign-in",
            "fail",
            f"{settings.oidc_issuer} cannot be reached or used: standard error has the reason",
            "check ABEYANCE_OIDC_ISSUER",
        )
    except AbeyanceError as error:
        return Finding("sign-in", "fail", str(error))
    return Finding("sign-in", "ok", f"people sign in at {provider.host}")


def _rules(settings: Settings) -> Finding:
    from abeyance.notifications.config import load_notifications, unreachable_links

    try:
        file = load_notifications(settings)
    except AbeyanceError as error:
        return Finding("rules", "fail", str(error))
    if (warning := unreachable_links(file, settings)) is not None:
        return Finding("rules", "warn", warning)
    count = 0 if file is None else len(file.rules)
    return Finding("rules", "ok", f"{count} in {settings.notifications}")


async def _slack(settings: Settings) -> Finding:
    from abeyance.cli.slack import found_of_slack

    try:
        text, warning = await found_of_slack(settings)
    except AbeyanceError as error:
        return Finding("slack", "fail", str(error))
    return Finding("slack", "ok" if warning is None else "warn", warning or text)


async def _storage(settings: Settings) -> Finding:
    from abeyance.storage.backends import storage_fault

    if settings.storage is None:
        return _without_storage()
    if (fault := await storage_fault(settings)) is not None:
        is_away = isinstance(fault, Unavailable)
        remedy = "see that it is there, and that this process may write to it" if is_away else None
        return Finding("storage", "fail", str(fault), remedy)
    return Finding("storage", "ok", f"{settings.storage} can be written and read")


def _without_storage() -> Finding:
    from abeyance.storage.backends import DEFAULT_FOLDER, is_on_this_machine, temporal_address

    text = "ABEYANCE_STORAGE is not set"
    if is_on_this_machine(temporal_address()):
        return Finding("storage", "ok", f"{text}: agents use {DEFAULT_FOLDER}")
    return Finding(
        "storage",
        "warn",
        f"{text}: large values stay in Temporal, and agents cannot run",
        "set it to s3://bucket/prefix, or to a folder that all processes share",
    )


async def _records(settings: Settings) -> Finding:
    from abeyance.records.database import Database

    database = Database(settings.database_url)
    text = "has the tables of this release"
    try:
        if database.exists:
            await asyncio.to_thread(database.check)
        else:
            await asyncio.to_thread(database.check_can_be_made)
            text = "is made when it is first used"
    except RecordsUnavailable as error:
        remedy = "see that it is there, and that this process may use it; runs go on meanwhile"
        return Finding("records", "fail", f"{database.place}: {error}", remedy)
    except SettingsError as error:
        return Finding("records", "fail", str(error))
    finally:
        database.close()
    if (warning := unshared_records(settings)) is not None:
        return Finding("records", "warn", warning)
    return Finding("records", "ok", f"{database.place} {text}")


async def _lost(client: Client) -> Finding | None:
    """Return a warning if the only records belong to a namespace that Temporal does not have."""
    from abeyance.temporal.connection import has_namespace

    if not client.records.database.exists:
        return None
    with suppress(Unavailable):
        for other in await client.records.adoptable():
            if not await has_namespace(client.temporal, other.namespace):
                return Finding(
                    "lost namespace",
                    "warn",
                    f"the records have {other.runs:,} runs of the namespace with the id "
                    f"{other.namespace}, which this Temporal does not have",
                    f"if it was lost, run `abeyance reindex --adopt {other.namespace}` before workers "
                    "and APIs start",
                )
    return None


def unshared_records(settings: Settings) -> str | None:
    """Return a warning if the records are in a file, and other processes may be on other machines."""
    from abeyance.settings import database_file
    from abeyance.storage.backends import is_on_this_machine, temporal_address

    file = database_file(settings.database_url)
    if file is None or is_on_this_machine(address := temporal_address()):
        return None
    return (
        f"the records are in the file {file}, and Temporal is at {address}: a worker or an API on "
        "another machine does not see them. Name a database of PostgreSQL in ABEYANCE_DATABASE_URL"
    )


def _keys(settings: Settings) -> Finding:
    from abeyance.keyring import WrongKey

    if not settings.keyring:
        text = "payloads are not encrypted: ABEYANCE_ENCRYPTION_KEYS is not set"
        return Finding("keys", "ok", text)
    names = [
        entry.partition(":")[0].strip() for entry in (settings.encryption_keys or "").split(",")
    ]
    try:
        settings.keyring.open(settings.keyring.seal(b"abeyance doctor"))
    except WrongKey as error:
        return Finding("keys", "fail", str(error))
    return Finding("keys", "ok", f"{names[0]!r} encrypts; {', '.join(map(repr, names))} decrypt")


async def _clock(client: Client, _settings: Settings) -> Finding:
    from abeyance.temporal.connection import clock_offset

    return clock_finding(await clock_offset(client.temporal))


def clock_finding(offset: timedelta) -> Finding:
    """Return the finding about this machine's clock, which is ahead of the server's by `offset`."""
    seconds = offset.total_seconds()
    if abs(offset) > _OFFSET:
        way = "ahead of" if seconds > 0 else "behind"
        return Finding(
            "clock",
            "warn",
            f"this machine is {abs(seconds):.0f} s {way} the server",
            "synchronize the clocks (NTP)",
        )
    return Finding("clock", "ok", f"{abs(seconds):.1f} s from that of the server")


async def _retention(client: Client, _settings: Settings) -> Finding:
    from abeyance.duration import in_days
    from abeyance.temporal.connection import retention

    length = await retention(client.temporal)
    name = client.temporal.namespace
    text = f"{name!r} keeps ended runs for {in_days(length)}"
    if length < _RETENTION:
        remedy = (
            "after that nobody can retry or rewind them, or make their records anew; run `abeyance setup "
            "--retention 30d`"
        )
        return Finding("namespace", "warn", text, remedy)
    return Finding("namespace", "ok", text)


async def _attributes(client: Client, _settings: Settings) -> Finding:
    from abeyance.temporal.connection import missing_search_attributes

    if missing := await missing_search_attributes(client.temporal):
        return Finding(
            _ATTRIBUTES,
            "fail",
            f"{client.temporal.namespace!r} lacks {', '.join(missing)}",
            "run `abeyance setup`",
        )
    return Finding(_ATTRIBUTES, "ok", "all are registered")


async def _workers(client: Client, _settings: Settings) -> Finding:
    found = await client.service()
    workers = found.workers
    if found.unserved:
        return Finding("workers", "fail", "; ".join(found.unserved))
    if found.orphaned:
        return Finding("workers", "warn", "; ".join(found.orphaned))
    builds = sorted({worker.build_id for worker in workers})
    listed = ", ".join(f"{worker.identity} (build {worker.build_id[:12]})" for worker in workers)
    text = f"{len(workers)}: {listed}"
    if len(builds) > 1:
        remedy = "finish the deploy, so that all run the same code"
        return Finding("workers", "warn", text, remedy)
    return Finding("workers", "ok", text)


async def _blocked(client: Client, _settings: Settings) -> Finding:
    from abeyance.filters import RunFilter

    runs, more = await client.runs.list(RunFilter(blocked=True), limit=_PAGE)
    if not runs:
        return Finding("blocked runs", "ok", "none")
    named = ", ".join(view.run_id for view in runs[:_NAMED])
    return Finding(
        "blocked runs",
        "warn",
        f"{len(runs)}{'+' if more else ''}, such as {named}",
        "`abeyance show RUN` says what each waits for",
    )


async def _questions(client: Client, _settings: Settings) -> Finding:
    asked, more = await client.inbox.list(limit=_PAGE)
    return questions_finding(asked, datetime.now(UTC), more=more is not None)


def questions_finding(asked: Sequence[InterruptView], now: datetime, *, more: bool) -> Finding:
    """Return the finding about open questions; `more` says that there are others."""
    from abeyance.views import UNREADABLE

    if not asked:
        return Finding("open questions", "ok", "none")
    oldest = min(asked, key=lambda entry: entry.created_at)
    text = (
        f"{len(asked)}{'+' if more else ''}, the oldest {oldest.id} since "
        f"{oldest.created_at:%Y-%m-%dT%H:%M:%SZ}"
    )
    unread = [entry for entry in asked if entry.kind == UNREADABLE]
    if unread:
        return Finding(
            "open questions",
            "fail",
            f"{text}; {len(unread)} cannot be read here, such as {unread[0].id}: {unread[0].prompt}",
            "give all processes the same keys",
        )
    overdue = [e for e in asked if e.deadline is not None and now - e.deadline > _OVERDUE]
    if overdue:
        return Finding(
            "open questions",
            "warn",
            f"{text}; the deadline of {overdue[0].id} has passed, and nothing has happened",
            "see whether workers are up and the run is paused",
        )
    return Finding("open questions", "ok", text)


async def _notifications(client: Client, _settings: Settings) -> Finding:
    from abeyance.client.listing import undelivered

    found = await undelivered(client.temporal, client.task_queue, limit=_PAGE)
    if not found:
        return Finding(_DELIVERY, "ok", "all were delivered")
    latest = found[0]
    text = f"{len(found)}{'+' if len(found) == _PAGE else ''} did not reach everybody"
    return Finding(
        _DELIVERY,
        "warn",
        f"{text}, the latest {latest.event} of {latest.run_id}: {'; '.join(latest.reasons)}",
        "mend the receiver, or the file of rules: nobody tries these again",
    )


_CHECKS: Final[dict[str, Check]] = {
    "clock": _clock,
    "namespace": _retention,
    _ATTRIBUTES: _attributes,
    "workers": _workers,
    "blocked runs": _blocked,
    "open questions": _questions,
    _DELIVERY: _notifications,
}
