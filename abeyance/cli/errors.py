"""How a command ends: its exit code, and leaving a process that has used the Temporal SDK.

code  means                                                          a script may
0     done; of a run that was waited for: it completed               go on
1     a run failed, was halted or cancelled; a graph has faults      read why, and mend it
2     wrong usage or settings; nothing was asked of the API          mend the command
3     the API refused: nothing has changed                           read the code of the problem
4     the API, or what it needs, cannot be reached                   repeat the same command later
130   interrupted by Ctrl-C; runs go on                              repeat the same command
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import sys
from enum import IntEnum
from typing import Any, Final, NoReturn

import typer
from typer.core import TyperCommand

from abeyance.errors import AbeyanceError, GraphError, Refusal, SettingsError, Unavailable


class ExitCode(IntEnum):
    """What the exit code of a command tells; the table above is the contract."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    REFUSED = 3
    AWAY = 4
    INTERRUPTED = 130


def code_of(error: AbeyanceError) -> ExitCode:
    """The exit code of a command that ends with an error."""
    match error:
        case SettingsError() | GraphError():
            return ExitCode.USAGE
        case Unavailable():
            return ExitCode.AWAY
        case _:
            return ExitCode.REFUSED


def code_of_run(status: str) -> ExitCode:
    """The exit code of a command that has waited for the end of a run, by the run's status."""
    return ExitCode.DONE if status == "completed" else ExitCode.FAILED


def leave(code: int) -> NoReturn:
    """End this process with an exit code, now.

    Threads of the Temporal SDK may still enter the interpreter while it is taken down, which crashes
    it now and then (tried: 4 times in 75 of `abeyance setup` on a busy machine). And a node that is
    stuck in a thread would keep a worker that was told to stop for ever.
    """
    if "temporalio" not in sys.modules:
        sys.exit(code)
    logging.shutdown()
    atexit._run_exitfuncs()  # noqa: SLF001  (there is no other way to run them before `_exit`)
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


_TITLES: Final = {
    "wrong_usage": "The command or its settings cannot be used",
    "graph_faults": "A graph has faults",
    "unavailable": "What is needed cannot be reached",
    "refused": "It was refused",
}


class ErrorText(TyperCommand):
    """A command whose errors are told as its answers are: with --json as JSON."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; an error of ours becomes a complaint and an exit code."""
        try:
            return super().invoke(ctx)
        except AbeyanceError as error:
            if ctx.params.get("as_json"):
                typer.echo(problem(error), err=True)
            else:
                print_error(error_text(error))
            raise typer.Exit(code_of(error)) from error


def print_error(text: str) -> None:
    """Say something to whoever reads stderr."""
    from abeyance.cli.formatting import readable

    typer.echo(f"abeyance: {readable(text)}", err=True)


def error_text(error: AbeyanceError) -> str:
    """An error as a person reads it."""
    from abeyance.http.connection import ApiProblem

    match error:
        case ApiProblem():
            return str(error)
        case GraphError():
            # All faults in one line: it may be the last line of a log that somebody passes on.
            return " ".join(str(error).split())
        case Refusal():
            return f"{error.code}: {error.message}"
        case _:
            return str(error)


def problem(error: AbeyanceError) -> str:
    """An error as one line of JSON, in the form of the API's problems (RFC 9457)."""
    from abeyance.http.connection import ApiProblem

    members: dict[str, Any] = {}
    match error:
        case ApiProblem():
            return json.dumps(error.problem)
        case Refusal():
            code, detail = str(error.code), error.message
            members = dict(error.details)
        case GraphError():
            code, detail = "graph_faults", error_text(error)
            members = {"faults": list(error.faults)}
        case SettingsError():
            code, detail = "wrong_usage", str(error)
        case Unavailable():
            code, detail = "unavailable", str(error)
        case _:
            code, detail = "refused", str(error)
    standard = {
        "type": f"urn:abeyance:problem:{code}",
        "title": _TITLES.get(code, _TITLES["refused"]),
        "detail": detail,
        "code": code,
    }
    return json.dumps({**members, **standard}, default=str)
