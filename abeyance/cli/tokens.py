"""Commands on the tokens of callers: add, list and revoke them."""

from __future__ import annotations

import json
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from abeyance.cli.api_call import PrintJson
from abeyance.cli.errors import ErrorText, print_error
from abeyance.cli.formatting import Line, show, show_table
from abeyance.errors import SettingsError

if TYPE_CHECKING:
    from abeyance.token_file import Grant

tokens = typer.Typer(no_args_is_help=True, help="Add, list and revoke the tokens of callers.")

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The owner of the token, the subject of its calls.")
]
File = Annotated[Path | None, typer.Option(help="The tokens file. Default: ABEYANCE_TOKENS_FILE.")]
_OF_THE_API: Final = (
    *("runs:start", "runs:start-for", "runs:read", "runs:control", "runs:steer", "runs:respond"),
    "admin",
)


@tokens.command(cls=ErrorText)
def add(
    name: Name,
    *,
    can: Annotated[
        list[str],
        typer.Option(
            metavar="CAPABILITY",
            help="What its owner may do, such as runs:read. Repeat it, or separate several by commas.",
        ),
    ],
    group: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GROUP",
            help="A group that its owner belongs to. Repeat it, or separate several by commas.",
        ),
    ] = None,
    reads: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LABEL=VALUE",
            help="Its owner sees only runs with this label. Repeat it: a label may have several values, "
            "and a run needs one of each label.",
        ),
    ] = None,
    file: File = None,
    as_json: PrintJson = False,
) -> None:
    """Make a token for NAME, and print it: only its hash is stored, so it cannot be shown again.

    NAME may have several tokens, so that an old one can be revoked once a new one is in use. A running
    API accepts the token at once.
    """
    from abeyance.token_file import add_token

    path = _path(file)
    capabilities, groups, labels = _words(can), _words(group or []), _labels(reads or [])
    if not capabilities:
        raise SettingsError("--can: no capability is given: write one, such as --can runs:read")
    token = add_token(path, name, capabilities, groups=groups, reads=labels)
    for word in capabilities:
        if word not in _OF_THE_API and (meant := get_close_matches(word, _OF_THE_API, 1, 0.85)):
            print_error(f"{word!r} is a capability of a graph at most: did you mean {meant[0]!r}?")
    if as_json:
        about = {"subject": name, "token": token, "capabilities": capabilities}
        typer.echo(json.dumps({**about, "groups": groups, "reads": labels}))
        return
    print_error(f"the token of {name}, who may {', '.join(capabilities)}, is shown only now:")
    typer.echo(token)


@tokens.command("list", cls=ErrorText)
def list_tokens(*, file: File = None, as_json: PrintJson = False) -> None:
    """List the owners of tokens, the beginning of each token's hash, and what its owner may do."""
    from abeyance.token_file import read_grants

    grants = read_grants(_path(file))
    if as_json:
        typer.echo(json.dumps([grant.model_dump() for grant in grants]))
    elif grants:
        show_table(("NAME", "HASH", "CAN", "GROUPS", "READS"), [*map(_row, grants)])
    else:
        show([Line("tokens", "none")])


@tokens.command(cls=ErrorText)
def revoke(
    name: Name,
    *,
    hash_: Annotated[
        str | None,
        typer.Option(
            "--hash",
            metavar="DIGITS",
            help="Revoke only the token whose hash begins with these digits.",
        ),
    ] = None,
    file: File = None,
    as_json: PrintJson = False,
) -> None:
    """Revoke the tokens of NAME. A running API refuses them from its next call on."""
    from abeyance.token_file import revoke_tokens

    revoked = revoke_tokens(_path(file), name, hash_)
    if as_json:
        typer.echo(json.dumps([grant.model_dump() for grant in revoked]))
        return
    show([Line("revoked", f"{grant.short_hash} of {grant.subject}") for grant in revoked])


def _words(parts: list[str]) -> list[str]:
    return [word for part in parts for each in part.split(",") if (word := each.strip())]


def _labels(pairs: list[str]) -> dict[str, list[str]]:
    labels: dict[str, list[str]] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise SettingsError(f"--reads: {pair!r} is not a label: write name=value")
        labels.setdefault(name, []).append(value)
    return labels


def _row(grant: Grant) -> tuple[str, ...]:
    reads = [f"{name}={value}" for name, values in grant.reads.items() for value in values]
    columns = (grant.capabilities, grant.groups, reads)
    return (grant.subject, grant.short_hash, *(" ".join(words) for words in columns))


def _path(file: Path | None) -> Path:
    from abeyance.settings import load_settings

    path = file or load_settings().tokens_file
    if path is None:
        raise SettingsError("there is no tokens file: set ABEYANCE_TOKENS_FILE, or add --file")
    return path
