"""Commands that control a run, edit it and its questions, show its result, and send it messages; and that
migrate it to today's graph, and retry it.

Their options are written out: the models of the bodies would have to be imported for `--help`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from abeyance.cli.api_call import (
    PANEL,
    AsJson,
    Note,
    Now,
    OpenInterrupt,
    Reason,
    RunId,
    Timeout,
    distinct,
    duration_given,
    exchange,
    interrupt_path,
    json_given,
    run_path,
    show_interrupt,
    with_api,
)
from abeyance.cli.errors import ErrorText, ExitCode, as_typed, code_of_run
from abeyance.cli.formatting import (
    Line,
    result_lines,
    run_lines,
    show,
    show_table,
)
from abeyance.errors import Code, SettingsError
from abeyance.util import without_none

if TYPE_CHECKING:
    from abeyance.http import Connection

controlling = typer.Typer()

_SHORTLY: Final = "PT2S"
"""How long a control command waits for its effect; with a running worker it takes less."""
_NEVER: Final = "none"


@controlling.command(cls=ErrorText, rich_help_panel=PANEL)
def pause(
    run_id: RunId,
    *,
    reason: Reason = None,
    mode: Annotated[
        str, typer.Option(help="after-node lets running nodes finish, now stops them.")
    ] = "after-node",
    timeout: Timeout = None,
    on_timeout: Annotated[
        str | None, typer.Option(help="Action at the timeout: resume, halt or goto:<node>.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Pause a run: it starts no new work until resumed."""
    body = {"reason": reason, "mode": mode, "timeout": timeout, "on_timeout": on_timeout}
    _control(run_id, "pause", body, as_json=as_json)


@controlling.command(cls=ErrorText, rich_help_panel=PANEL)
def resume(run_id: RunId, *, reason: Reason = None, as_json: AsJson = False) -> None:
    """Resume a paused run."""
    _control(run_id, "resume", {"reason": reason}, as_json=as_json)


@controlling.command(cls=ErrorText, rich_help_panel=PANEL)
def cancel(
    run_id: RunId,
    *,
    now: Now = False,
    grace: Annotated[
        str | None, typer.Option(help="How long running nodes may take to stop, such as 30s or 5m.")
    ] = None,
    reason: Reason = None,
    as_json: AsJson = False,
) -> None:
    """Cancel a run. Its values and finished work are kept."""
    if now and grace is not None:
        raise SettingsError("--now waits for nothing: leave out --grace, or --now")
    body = {"reason": reason, "mode": "now" if now else "graceful", "grace": grace}
    _control(run_id, "cancel", body, as_json=as_json)


@controlling.command(cls=ErrorText, rich_help_panel=PANEL)
def result(run_id: RunId, *, as_json: AsJson = False) -> None:
    """Show the outcome and the values of an ended run.

    The exit code is 1 if the outcome is not completed.
    """
    path = f"{run_path(run_id)}/result"
    record = exchange(lambda api: api.get(path), result_lines, as_json=as_json)
    raise typer.Exit(code_of_run(record["outcome"]))


@controlling.command(cls=ErrorText, rich_help_panel=PANEL)
def deadline(
    interrupt_id: OpenInterrupt,
    deadline: Annotated[
        str | None,
        typer.Argument(
            metavar="[TIME|DURATION|none]",
            help="2026-03-05T09:00Z, 2d (from now), 2bd (of the question's calendar), or none.",
        ),
    ] = None,
    *,
    on_timeout: Annotated[
        str | None, typer.Option(help="Action at the deadline: halt or goto:<node>.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Change the deadline of an interrupt, or the action at the deadline."""
    from abeyance.duration import span

    body: dict[str, Any] = {}
    if deadline == _NEVER:
        body["deadline"] = None
    elif deadline is not None:
        body["deadline" if duration_given(deadline, span) is None else "timeout"] = deadline
    if on_timeout is not None:
        body["on_timeout"] = on_timeout
    if not body:
        raise SettingsError("nothing is to be changed: add a time, or --on-timeout")
    path = interrupt_path(interrupt_id)
    show_interrupt(lambda api: api.send("PATCH", path, body), as_json=as_json)


@controlling.command(cls=ErrorText, rich_help_panel=PANEL)
def edit(
    run_id: RunId,
    fields: Annotated[
        list[str], typer.Argument(metavar="FIELD=JSON...", help="Fields and their new values.")
    ],
    *,
    version: Annotated[
        int | None,
        typer.Option(
            help="Edit only if the values are still at this version. Default: the current one."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Set values of a run that is paused or waits for an answer."""
    patch = distinct([_field(text) for text in fields], "FIELD")
    path = run_path(run_id)

    async def change(api: Connection) -> Any:
        read = version if version is not None else (await api.get(path))["version"]
        return await api.send("PATCH", f"{path}/values", {"patch": patch, "version": read})

    def lines(view: Any) -> list[Line]:
        if "values" not in view:
            return run_lines(view)
        values = {name: json.dumps(view["values"].get(name), ensure_ascii=False) for name in patch}
        text = "\n".join(f"{name} = {value}" for name, value in values.items())
        return [Line("run", run_id), Line("set", text), Line("version", str(view["version"]))]

    exchange(change, lines, as_json=as_json)


def _field(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise SettingsError(f"{text!r} is not a field with its value: write name=JSON")
    return name, json_given(value, name)


@controlling.command("take-back", cls=ErrorText, rich_help_panel=PANEL)
def take_back(
    interrupt_id: Annotated[
        str, typer.Argument(metavar="INTERRUPT", help="The id of a held interrupt.")
    ],
    *,
    note: Note = None,
    as_json: AsJson = False,
) -> None:
    """Take back a yes while it is held, so that its question is open again."""
    body = {} if note is None else {"note": note}
    path = f"{interrupt_path(interrupt_id)}/take-back"
    show_interrupt(lambda api: api.post(path, body), as_json=as_json)


def _control(run_id: str, operation: str, body: Mapping[str, Any], *, as_json: bool) -> None:
    path = f"{run_path(run_id)}/{operation}"
    members = without_none(**body)
    exchange(lambda api: api.post(path, members, wait=_SHORTLY), run_lines, as_json=as_json)


steering = typer.Typer()


@steering.command(cls=ErrorText, rich_help_panel=PANEL)
def steer(
    run_id: RunId,
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="Text of the message.")] = None,
    *,
    action: Annotated[
        str | None,
        typer.Option(help="A word for the code that reads it."),
    ] = None,
    params: Annotated[
        str | None, typer.Option(metavar="JSON|@FILE|-", help="Parameters of the action.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="Node or address that receives it.")] = None,
    priority: Annotated[str | None, typer.Option(help="high, normal or low.")] = None,
    ttl: Annotated[
        str | None,
        typer.Option(help="Discard it if it is unread after this time, such as 30s or 5m."),
    ] = None,
    metadata: Annotated[
        str | None, typer.Option(metavar="JSON|@FILE|-", help="Metadata of the message.")
    ] = None,
    message_id: Annotated[
        str | None,
        typer.Option("--id", help="Id of the message; sending the same id again changes nothing."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Send a message to a run.

    A message that cannot be delivered is listed under `undelivered` of the run, and one that the run
    refuses under `rejected`.
    """
    if text is None and action is None:
        raise SettingsError(
            'a message has no text: add one, or an --action: abeyance steer RUN "look at page 2"'
        )
    body: dict[str, Any] = {
        "text": text,
        "action": action,
        "target": target,
        "priority": priority,
        "ttl": ttl,
        "message_id": message_id,
        "params": None if params is None else json_given(params, "--params"),
        "metadata": None if metadata is None else json_given(metadata, "--metadata"),
    }
    members = without_none(**body)
    path = f"{run_path(run_id)}/steer"
    exchange(
        lambda api: api.post(path, members),
        lambda sent: [Line("sent", sent["message_id"])],
        as_json=as_json,
    )


@steering.command(cls=ErrorText, rich_help_panel=PANEL)
def messages(
    run_id: RunId,
    *,
    clear: Annotated[
        bool, typer.Option("--clear", help="Discard them; the run lists them as undelivered.")
    ] = False,
    page: Annotated[int, typer.Option(min=1, help="Page number; a page has 50 messages.")] = 1,
    as_json: AsJson = False,
) -> None:
    """List the unread messages of a run, in reading order."""
    path = f"{run_path(run_id)}/messages"

    async def call(api: Connection) -> Any:
        return await (api.delete(path) if clear else api.get(path, page=str(page)))

    exchange(call, _cleared_lines if clear else _page_lines, as_json=as_json)


def _cleared_lines(cleared: Mapping[str, Any]) -> Iterator[Line]:
    yield Line("cleared", str(cleared["cleared"]))


def _page_lines(page: Mapping[str, Any]) -> Iterator[Line]:
    for entry in page["items"]:
        about = [f"from {entry['sender']}"]
        for name in ("action", "target"):
            about += [f"{name} {entry[name]}"] if entry[name] else []
        about += [entry["priority"]] if entry["priority"] != "normal" else []
        about += [f"until {entry['expires_at']}"] if entry["expires_at"] else []
        yield Line("message", entry["text"] or "(no text)")
        yield Line("", f"{entry['message_id']}  {', '.join(about)}")
    pages = -(-page["total"] // page["page_size"])
    of_pages = f", page {page['page']} of {pages}" if pages > 1 else ""
    yield Line("unread", f"{page['total']}{of_pages}")


moving = typer.Typer()

_OPEN: Final = "running,awaiting-input,paused"

Patch = Annotated[
    str | None, typer.Option(metavar="JSON|@FILE|-", help="Fields to set in the values of the run.")
]
Renamed = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="OLD=NEW",
        help="A node that was renamed, such as pay=payout. Repeat it for several.",
    ),
]


@moving.command(cls=ErrorText, rich_help_panel=PANEL)
def migrate(
    context: typer.Context,
    run_id: Annotated[str | None, typer.Argument(metavar="[RUN]", help="The id of a run.")] = None,
    *,
    graph: Annotated[str | None, typer.Option(help="With --all: the graph of the runs.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="Migrate all open runs of --graph.")] = False,
    renamed: Renamed = None,
    patch: Patch = None,
    pause: Annotated[
        bool,
        typer.Option("--pause", help="Pause the run until its code has ended, and resume it then."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing, and show what would happen.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Move an open run, or all open runs of a graph, to the graph that the workers have today.

    The exit code is 1 if --dry-run finds an obstacle, and with --all if any run was not migrated.
    """
    body = {"pause": pause, "dry_run": dry_run, **_changes(patch, renamed)}
    told = partial(as_typed, command=context.command)
    if all_ != (graph is not None) or all_ == (run_id is not None):
        raise SettingsError("name one RUN, or use both --graph and --all")
    if run_id is None:
        _migrate_all(str(graph), body, told, as_json=as_json)
        return
    path = f"{run_path(run_id)}/migrate"
    lines = partial(_migration_lines, told=told)
    done = exchange(lambda api: api.post(path, body), lines, as_json=as_json)
    if done["obstacles"]:
        raise typer.Exit(ExitCode.FAILED)


def _migrate_all(
    graph: str, body: Mapping[str, Any], told: Callable[[str], str], *, as_json: bool
) -> None:
    async def work(api: Connection) -> list[dict[str, Any]]:
        return [
            await _migrated(api, str(each["run_id"]), body)
            async for page in api.pages("/runs", graph=graph, status=_OPEN)
            for each in page["items"]
        ]

    results = with_api(work)
    failed = sum(not each["ok"] for each in results)
    if as_json:
        counts = {"succeeded": len(results) - failed, "failed": failed}
        typer.echo(json.dumps({"results": results, **counts}))
    elif results:
        rows = [(each["run_id"], each["outcome"], told(each["detail"])) for each in results]
        show_table(("RUN", "OUTCOME", "DETAIL"), rows)
    else:
        show([Line("runs", f"no run of {graph!r} is open")])
    if failed:
        raise typer.Exit(ExitCode.FAILED)


async def _migrated(api: Connection, run_id: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Migrate one run of several, and return the outcome."""
    from abeyance.core.migration import CODE_UNDER_WAY
    from abeyance.http.connection import ApiRefusal, ApiUnavailable
    from abeyance.runtime.graph_today import is_under_way

    path = f"/runs/{run_id}/migrate"
    try:
        try:
            done = await api.post(path, body)
        except ApiRefusal as refusal:
            if refusal.code is not Code.CANNOT_MIGRATE:
                raise
            if body["pause"] and is_under_way(refusal):
                # It says that the run stays paused.
                raise
            # Its versions say whether an earlier call has migrated the run.
            done = await api.post(path, {**body, "dry_run": True})
    except (ApiRefusal, ApiUnavailable) as error:
        # The API answers: where a run has no worker that can read it, others may have one.
        code, detail = error.problem["code"], error.problem.get("detail", "")
        return {"run_id": run_id, "ok": False, "outcome": code, "detail": detail}
    versions = f"{done['before']} to {done['after']}"
    # A graph of today has no old names, and code does not keep a run from staying as it is.
    harmless = {"rename"} if "patch" in body else {"rename", CODE_UNDER_WAY}
    if done["before"] == done["after"] and harmless.issuperset(
        each["what"] for each in done["obstacles"]
    ):
        return {"run_id": run_id, "ok": True, "outcome": "unchanged", "detail": versions}
    if done["obstacles"]:
        detail = "; ".join(_obstacle_text(each) for each in done["obstacles"])
        return {"run_id": run_id, "ok": False, "outcome": "cannot_migrate", "detail": detail}
    if done["dry_run"]:
        is_asked = body["dry_run"]
        return {"run_id": run_id, "ok": is_asked, "outcome": "can be migrated", "detail": versions}
    return {"run_id": run_id, "ok": True, "outcome": "migrated", "detail": versions}


def _migration_lines(done: Mapping[str, Any], told: Callable[[str], str]) -> Iterator[Line]:
    yield Line("run", done["run_id"])
    yield Line("versions", f"{done['before']} to {done['after']}")
    for before, after in done["nodes"].items():
        yield Line("node", before if before == after else f"{before} is {after}")
    for each in done["obstacles"]:
        yield Line("obstacle", f"{_obstacle_text(each)}; {told(each['remedy'])}")
    if done["dry_run"]:
        yield Line("dry run", "nothing was changed")


def _obstacle_text(obstacle: Mapping[str, Any]) -> str:
    return f"{obstacle['what']} {obstacle['name']}: {obstacle['why']}"


@moving.command(cls=ErrorText, rich_help_panel=PANEL)
def retry(
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="The id of an ended run.")],
    *,
    patch: Patch = None,
    today: Annotated[
        bool, typer.Option("--today", help="Move it to the graph that the service has today.")
    ] = False,
    renamed: Renamed = None,
    as_json: AsJson = False,
) -> None:
    """Let a run that failed, was halted or was cancelled go on from where it ended.

    It keeps its id, and everything that has finished.
    """
    if renamed and not today:
        raise SettingsError("--map is for the graph of today: add --today")
    body = {"graph": "today" if today else "pinned", **_changes(patch, renamed)}
    path = f"{run_path(run_id)}/retry"
    exchange(lambda api: api.post(path, body), run_lines, as_json=as_json)


@moving.command(cls=ErrorText, rich_help_panel=PANEL)
def rewind(
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="The id of a run, open or ended.")],
    *,
    to: Annotated[
        str, typer.Option("--to", metavar="QUESTION", help="The id of a question, or start.")
    ],
    patch: Patch = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing, and show what would be discarded.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Rewind a run to when a question was open, and discard what has happened since.

    What has run since may run again, with the same idempotency keys as before.
    """
    body = {"to": to, "dry_run": dry_run, **_changes(patch, None)}
    path = f"{run_path(run_id)}/rewind"
    exchange(lambda api: api.post(path, body), _rewind_lines, as_json=as_json)


def _rewind_lines(done: Mapping[str, Any]) -> Iterator[Line]:
    yield Line("run", done["run_id"])
    for event in done["discards"]:
        about = [f"by {event['actor']}"] if event["actor"] else []
        yield Line("discards", " ".join([event["time"], event["type"], *about]))
    for each in done["effects"]:
        times = "once" if each["attempts"] == 1 else f"{each['attempts']} times"
        yield Line("ran", f"{each['node']}, {times} since {each['at']}: {each['address']}")
    if not done["discards"]:
        yield Line("discards", "nothing: nothing has happened since")


def _changes(patch: str | None, renamed: list[str] | None) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if patch is not None:
        changes["patch"] = json_given(patch, "--patch")
    if renamed:
        changes["map"] = distinct([_pair(text) for text in renamed], "--map")
    return changes


def _pair(text: str) -> tuple[str, str]:
    old, equals, new = text.partition("=")
    if not (old and equals and new):
        raise SettingsError(f"--map: {text!r} is not a renamed node: write OLD=NEW")
    return old, new
