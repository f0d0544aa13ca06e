"""Exit codes and error output of commands.

code  meaning                                                        what a script may do
0     success; with --wait: the run completed                        continue
1     a run failed, was halted or cancelled; a graph has faults;     read the cause and fix it
      a deploy would block open runs
2     wrong usage or settings; the API was not called                fix the command
3     the API refused; nothing has changed                           read the code of the problem
4     the API, or a service it needs, is unavailable                 repeat the same command later
5     with --wait: the run is blocked, and continues once that is fixed   read what blocks it, and fix it
130   interrupted by Ctrl-C; runs continue                           repeat the same command
141   the reader of the output closed it, as `head` does             continue
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import inspect
import json
import logging
import os
import re
import sys
from enum import IntEnum
from typing import Any, Final, NoReturn

import typer
from typer.core import TyperCommand
from typer.exceptions import TyperException

from abeyance.cli.formatting import readable
from abeyance.core.text import truncate
from abeyance.errors import (
    AbeyanceError,
    Code,
    GraphError,
    RecordsUnavailable,
    Refusal,
    SettingsError,
    Unavailable,
)
from abeyance.util import PROBLEM_TYPE


class ExitCode(IntEnum):
    """Exit codes; the table above is the contract."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    REFUSED = 3
    AWAY = 4
    BLOCKED = 5
    INTERRUPTED = 130
    UNREAD = 141


def code_of(error: AbeyanceError) -> ExitCode:
    """Return the exit code for an error."""
    match error:
        case SettingsError() | GraphError():
            return ExitCode.USAGE
        case Unavailable():
            return ExitCode.AWAY
        case _:
            return ExitCode.REFUSED


def code_of_run(status: str) -> ExitCode:
    """Return the exit code for the final status of a run."""
    return ExitCode.DONE if status == "completed" else ExitCode.FAILED


def leave(code: int) -> NoReturn:
    """End this process with an exit code, without finalizing the interpreter.

    Threads of the Temporal SDK (1.35.0) may enter the interpreter while it shuts down, which sometimes
    crashes it (measured: 4 of 75 runs of `abeyance setup` on a busy machine). And a node stuck in a
    thread would keep a stopping worker alive forever.
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
    "wrong_usage": "Invalid command or settings",
    "graph_faults": "Invalid graph",
    "records_unavailable": "Records unavailable",
    "unavailable": "Service unavailable",
    "refused": "Request refused",
}


class ErrorText(TyperCommand):
    """A command that prints errors as text, or with --json as JSON."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # Typer keeps the line ends of the source, so a terminal of 80 columns would break lines twice.
        paragraphs = inspect.cleandoc(self.help or "").split("\n\n")
        self.help = "\n\n".join(" ".join(each.split()) for each in paragraphs)

    def make_context(self, info_name: Any, args: list[str], *rest: Any, **extra: Any) -> Any:
        """Parse the arguments; turn a mistake in them into a message and an exit code."""
        is_json = "--json" in args
        try:
            return super().make_context(info_name, args, *rest, **extra)
        except TyperException as error:
            if is_json:
                print_problem(SettingsError(usage_text(error)))
            else:
                print_error(usage_text(error))
            raise typer.Exit(ExitCode.USAGE) from error

    def invoke(self, ctx: Any) -> Any:
        """Run the command; turn an AbeyanceError into a message and an exit code."""
        try:
            return super().invoke(ctx)
        except AbeyanceError as error:
            if ctx.params.get("as_json"):
                print_problem(error)
            else:
                is_of_request = getattr(error, "code", None) == Code.INVALID_BODY
                print_error(as_typed(error_text(error), self, has_pointers=is_of_request))
            raise typer.Exit(code_of(error)) from error


def as_typed(text: str, command: Any, *, has_pointers: bool = False) -> str:
    """Return a text of the API in which options and arguments replace the names of fields.

    A parameter of a command has the name of its field, in Python or on the command line. Pointers may
    lead into values too, but for those of an invalid request.
    """
    for param in command.params:
        option = param.opts[-1]
        typed = option if option.startswith("-") else param.metavar or param.name.upper()
        for field in {param.name.strip("_"), option.strip("-").replace("-", "_")}:
            text = text.replace(f"`{field}`", typed)
            if has_pointers:
                text = re.sub(rf"(?<= )/{field}(/\d+)?(?=[:/])", typed, text)
    return text.replace("the body: ", "")


def code_of_output(error: OSError) -> ExitCode:
    """Return the exit code for an output that cannot be written. Raises all other errors again."""
    if error.errno == errno.EPIPE:
        return ExitCode.UNREAD
    if error.errno != errno.ENOSPC:
        raise error
    print_error(f"the output cannot be written ({error.strerror})")
    # Python would write the rest of the buffer when it ends, and fail again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return ExitCode.FAILED


def usage_text(error: TyperException) -> str:
    """Return the fault of the arguments in one line: with the value, and where to read on."""
    text = " ".join(error.format_message().rstrip(".").split())
    if isinstance(error.__cause__, ValueError) and (of := getattr(error.__cause__, "errors", None)):
        text += f" (got {truncate(str(of()[0]['input']), 100)!r})"
    context = getattr(error, "ctx", None)
    return f"{text}: see `{context.command_path} --help`" if context else text


def print_error(text: str) -> None:
    """Print a message on stderr."""
    typer.echo(f"abeyance: {readable(text)}", err=True)


def print_problem(error: AbeyanceError) -> None:
    """Print an error on stderr as JSON."""
    typer.echo(problem(error), err=True)


def error_text(error: AbeyanceError) -> str:
    """Return the text of an error for people."""
    from abeyance.http.connection import ApiProblem

    match error:
        case ApiProblem():
            return str(error)
        case GraphError():
            # All faults in one line: `dev` prints the last line of a log.
            return " ".join(str(error).split())
        case Refusal():
            return f"{error.code}: {error.message}"
        case _:
            return str(error)


def problem(error: AbeyanceError) -> str:
    """Return an error as one line of JSON, in the API's problem format (RFC 9457)."""
    from abeyance.http.connection import ApiProblem

    members: dict[str, Any] = {}
    match error:
        case ApiProblem():
            return json.dumps(error.problem)
        case Refusal():
            from abeyance.api.problems import refused  # FastAPI takes long to load

            return json.dumps(json.loads(bytes(refused(error).body)))
        case GraphError():
            code, detail = "graph_faults", error_text(error)
            members = {"faults": list(error.faults)}
        case SettingsError():
            code, detail = "wrong_usage", str(error)
        case RecordsUnavailable():
            code, detail = error.code, str(error)
        case Unavailable():
            code, detail = "unavailable", str(error)
        case _:
            code, detail = "refused", str(error)
    standard = {
        "type": f"{PROBLEM_TYPE}{code}",
        "title": _TITLES.get(code, _TITLES["refused"]),
        "detail": detail,
        "code": code,
    }
    return json.dumps({**members, **standard}, default=str)
