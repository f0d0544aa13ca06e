"""Commands on the audit of a run: print it, verify it, and erase a run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from abeyance.cli.api_call import PANEL, AsJson, RunId, exchange, run_path, with_api
from abeyance.cli.errors import ErrorText, ExitCode
from abeyance.cli.formatting import Line, show
from abeyance.errors import SettingsError

if TYPE_CHECKING:
    from abeyance.records.audit_chain import Verified

auditing = typer.Typer()


@auditing.command(cls=ErrorText, rich_help_panel=PANEL)
def audit(
    run_id: Annotated[str | None, typer.Argument(metavar="RUN", help="The id of a run.")] = None,
    *,
    verify: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Verify an audit in a file, or - for stdin, without the API."
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="PUBLIC", help="With --verify: the public key that must have signed every line."
        ),
    ] = None,
    public_key: Annotated[
        bool, typer.Option("--public-key", help="Print the public key of ABEYANCE_AUDIT_KEY.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --verify: print the findings as JSON.")
    ] = False,
) -> None:
    """Print who did what in RUN and when, as JSON lines that can be verified.

    The exit code of --verify is 1 if a line does not match, or if the end was cut off.
    """
    if [run_id is not None, verify is not None, public_key].count(True) != 1:
        raise SettingsError("give one of RUN, --verify FILE and --public-key")
    if key is not None and verify is None:
        raise SettingsError("--key is for --verify FILE")
    if public_key:
        typer.echo(_public_key())
    elif verify is not None:
        found = _verified(verify, key)
        _show(found, str(verify), is_checked=key is not None, as_json=as_json)
        if found.faults:
            raise typer.Exit(ExitCode.FAILED)
    elif run_id is not None:
        path = f"{run_path(run_id)}/audit"
        data = with_api(lambda api: api.content(path, "application/x-ndjson"))
        # As they are: another line break, or another encoding, would be another audit.
        sys.stdout.buffer.write(data)


@auditing.command(cls=ErrorText, rich_help_panel=PANEL)
def erase(run_id: RunId, *, as_json: AsJson = False) -> None:
    """Erase a run that has ended: its records, its histories, and its stored data.

    A signed tombstone remains. Repeat the command to see whether it is done. An open run is refused:
    cancel it first.
    """
    path = run_path(run_id)

    def lines(response: Any) -> list[Line]:
        return [Line(response["state"], response["run_id"])]

    exchange(lambda api: api.delete(path), lines, as_json=as_json)


def _public_key() -> str:
    from abeyance.settings import load_settings

    signing_key = load_settings().signing_key
    if signing_key is None:
        raise SettingsError(
            "ABEYANCE_AUDIT_KEY is not set: `openssl rand -base64 32` makes one; keep it like a password"
        )
    return signing_key.public


def _verified(file: Path, key: str | None) -> Verified:
    from abeyance.keyring import VerifyingKey
    from abeyance.records.audit_chain import verify

    try:
        verifying = None if key is None else VerifyingKey.parse(key)
    except ValueError as error:
        raise SettingsError(f"--key: {error}") from error
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise SettingsError(f"--verify: {file} cannot be read ({error.strerror})") from error
    return verify(data, verifying)


def _show(found: Verified, file: str, *, is_checked: bool, as_json: bool) -> None:
    if as_json:
        report = {
            "lines": found.lines,
            "faults": [{"line": fault.line, "message": fault.message} for fault in found.faults],
            "run_id": found.last.get("run_id"),
            "last": found.last.get("type"),
            "signatures": _signatures(found, is_checked=is_checked),
        }
        typer.echo(json.dumps(report))
        return

    lines = [Line("fault", str(fault)) for fault in found.faults]
    if not lines:
        last = found.last
        lines = [
            Line("verified", f"{file}: {found.lines} lines, none was changed"),
            Line("run", str(last.get("run_id"))),
            Line(str(last.get("type")), str(last.get("time"))),
        ]
    lines.append(Line("signatures", _signatures(found, is_checked=is_checked)))
    show(lines)


def _signatures(found: Verified, *, is_checked: bool) -> str:
    if is_checked:
        return "wrong" if found.faults else "match"
    return "not checked: give --key" if found.is_signed else "none"
