"""Commands on graphs: check and draw them."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from abeyance.cli.api_call import PrintJson, in_path, with_api
from abeyance.cli.errors import ErrorText, ExitCode, print_problem
from abeyance.cli.formatting import readable
from abeyance.errors import GraphError

if TYPE_CHECKING:
    from abeyance.authoring.graph import Graph


charts = typer.Typer(help="Check and draw graphs.", no_args_is_help=True)

_LINE: Final = re.compile(r"line (\d+): (.*)", re.DOTALL)
"""Prefix of a fault in a YAML file."""


@charts.command(cls=ErrorText)
def check(
    app: Annotated[
        str,
        typer.Argument(
            metavar="FILE|MODULE:ATTRIBUTE",
            help="YAML file, or graphs as package.module:attribute.",
        ),
    ],
    *,
    as_json: PrintJson = False,
) -> None:
    """Check graphs and print all faults. The modules that they name are imported.

    The exit code is 1 if there are faults, and 2 if no graph is found.
    """
    graphs, faulty = _read(app)
    faults = [fault for error in faulty for fault in _faults(error)]
    if as_json:
        sound = [{"name": graph.name, **_size(graph)} for graph in graphs.values()]
        typer.echo(json.dumps({"faults": faults, "sound": sound}))
    else:
        for line in _lines(faulty):
            _print(line)
        for graph in graphs.values():
            size = ", ".join(f"{what}: {count}" for what, count in _size(graph).items())
            _print(f"{graph.name}: no faults ({size})")
    raise typer.Exit(ExitCode.FAILED if faults else ExitCode.DONE)


@charts.command(cls=ErrorText)
def show(
    app: Annotated[
        str,
        typer.Argument(
            metavar="FILE|MODULE:ATTRIBUTE|NAME",
            help="YAML file, graphs as package.module:attribute, or name of a graph of the API.",
        ),
    ],
    *,
    as_json: PrintJson = False,
) -> None:
    """Print graphs as Mermaid flowcharts."""
    is_name = ":" not in app and "/" not in app and Path(app).suffix not in (".yaml", ".yml")
    if is_name:
        path = f"/graphs/{in_path(app, 'NAME')}/diagram"
        drawn = {app: with_api(lambda api: api.text(path))}
    else:
        from abeyance.authoring.diagram import mermaid

        graphs, faulty = _read(app)
        if faulty:
            lines = _lines(faulty)
            if as_json:
                print_problem(GraphError(app, lines))
            else:
                _print("\n".join(lines), err=True)
            raise typer.Exit(ExitCode.FAILED)
        drawn = {name: mermaid(graph.build()) for name, graph in graphs.items()}
    if as_json:
        items = [{"name": name, "diagram": text} for name, text in drawn.items()]
        typer.echo(json.dumps({"items": items}))
        return
    # A Mermaid comment before each diagram tells several apart.
    titles = len(drawn) > 1
    texts = (f"%% {name}\n{text}" if titles else text for name, text in drawn.items())
    typer.echo("\n".join(texts), nl=False)


def _read(app: str) -> tuple[Mapping[str, Graph], Sequence[GraphError]]:
    from abeyance.app import read_graphs

    try:
        # An imported module may print: keep stdout for the output of the command.
        with redirect_stdout(sys.stderr):
            return read_graphs(app)
    except GraphError as error:
        # Raised while a module that builds its own graph is imported.
        return {}, [error]


def _size(graph: Graph) -> dict[str, int]:
    spec = graph.build()
    return {"nodes": len(spec.nodes), "edges": len(spec.edges)}


def _faults(error: GraphError) -> list[dict[str, Any]]:
    from abeyance.authoring.lines import line_of

    faults = []
    for fault in error.faults:
        match = _LINE.fullmatch(fault)
        line, message = (int(match[1]), match[2]) if match else (line_of(fault), fault)
        faults.append({"graph": error.graph, "line": line, "message": message})
    return faults


def _lines(faulty: Sequence[GraphError]) -> list[str]:
    lines = []
    for error in faulty:
        for fault in error.faults:
            match = _LINE.fullmatch(fault)
            place = f"{error.graph}:{match[1]}" if match else error.graph
            message = match[2] if match else fault
            lines.append(f"{place}: {' '.join(message.split())}")
    return lines


def _print(text: str, *, err: bool = False) -> None:
    typer.echo(readable(text), err=err)
