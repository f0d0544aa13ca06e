"""What a command says on stderr when it cannot do what it was asked: a line, or a problem as JSON."""

from __future__ import annotations

import json
from typing import Any, Final

import typer
from typer.core import TyperCommand

from abeyance.commands.exit import code_of
from abeyance.errors import AbeyanceError, GraphError, Refusal, SettingsError, Unavailable

_TITLES: Final = {
    "wrong_usage": "The command or its settings cannot be used",
    "graph_faults": "A graph has faults",
    "unavailable": "What is needed cannot be reached",
    "refused": "It was refused",
}


class Told(TyperCommand):
    """A command whose errors are told as its answers are: with --json as JSON."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; an error of ours becomes a complaint and an exit code."""
        try:
            return super().invoke(ctx)
        except AbeyanceError as error:
            if ctx.params.get("as_json"):
                typer.echo(problem(error), err=True)
            else:
                complain(told(error))
            raise typer.Exit(code_of(error)) from error


def complain(text: str) -> None:
    """Say something to whoever reads stderr."""
    from abeyance.commands.terminal import readable

    typer.echo(f"abeyance: {readable(text)}", err=True)


def told(error: AbeyanceError) -> str:
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
            code, detail = "graph_faults", told(error)
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
