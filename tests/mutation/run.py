"""Mutation of the core: change one thing in it at a time, and see whether a test notices.

mutmut makes the mutants and knows which tests reach each of them. This prepares a copy of what they need,
leaves out mutants that tell nothing, and compares those that live with docs/concepts/mutation.md.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from libcst import BaseString, SimpleString

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs/concepts/mutation.md"
PLACE: Final = ROOT / "out/mutation"
# What the tests of the core import, beside the package itself.
BESIDE: Final = (
    "activities",
    "api",
    "workflows",
    "tests/core",
    "tests/support",
    "tests/conftest.py",
)
# Random runs are slow, and reach everything: what only they notice deserves an example.
RANDOM: Final = ("run_stateful", "snapshots_stateful", "authority_stateful")
KILLED: Final = ("killed", "timeout")
_SETTINGS: Final = """
[tool.mutmut]
source_paths = ["abeyance/core"]
only_mutate = {modules}
pytest_add_cli_args = {arguments}
pytest_add_cli_args_test_selection = {selection}
use_git_change_detection = false
track_dependencies = false
timeout_multiplier = 30.0
"""
_WORD: Final = re.compile(r"""["'][^\s"']+["']""")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="+", help="votes, claims, ..., or `all`")
    parser.add_argument("--tests", nargs="*", default=(), help="only these files of tests/core")
    parser.add_argument("--again", action="store_true", help="only what lived the last time")
    options = parser.parse_args()
    known = sorted(path.stem for path in (ROOT / "abeyance/core").glob("[a-z]*.py"))
    modules = known if options.modules == ["all"] else options.modules
    if unknown := sorted({*modules} - {*known}):
        sys.exit(f"abeyance/core has no {', '.join(unknown)}. It has {', '.join(known)}.")
    place = PLACE / "-".join(options.modules)
    if not options.again:
        shutil.rmtree(place, ignore_errors=True)
    _prepare(place, modules, [f"tests/core/test_{name}.py" for name in options.tests])
    os.chdir(place)
    sys.exit(_run(only_living=options.again))


def _prepare(place: Path, modules: list[str], tests: list[str]) -> None:
    copy = place / "mutants"
    for name in ("abeyance", *BESIDE) if not copy.exists() else ("tests/core", "tests/support"):
        source, target = ROOT / name, copy / name
        if source.is_dir():
            shutil.copytree(
                source,
                target,
                symlinks=True,
                dirs_exist_ok=True,
                ignore=shutil.ignore_patterns("__pycache__"),
            )
        else:
            shutil.copy2(source, target)
    if not (place / "abeyance").exists():
        (place / "abeyance").symlink_to(ROOT / "abeyance")
    arguments = ["-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:cov"]
    arguments += ["-p", "no:schemathesis", "--hypothesis-profile=few"]
    arguments += [f"--ignore=tests/core/test_{name}.py" for name in RANDOM]
    settings = _SETTINGS.format(
        modules=[f"abeyance/core/{name}.py" for name in modules],
        arguments=arguments,
        selection=tests or ["tests/core"],
    )
    project = (ROOT / "pyproject.toml").read_text()
    (place / "pyproject.toml").write_text(project + settings)


def _run(*, only_living: bool) -> int:
    import pytest
    from mutmut import __main__ as mutmut
    from mutmut.mutation.diff_apply import get_diff_for_mutant
    from mutmut.mutation.mutators import mutation_operators

    mutation_operators[:] = [
        (kind, _words if kind is BaseString else operator) for kind, operator in mutation_operators
    ]
    # mutmut 3.8 asks for it; pytest 9.2 has only the public one.
    pytest.Item._nodeid = property(lambda item: item.nodeid)  # type: ignore[attr-defined]
    if only_living:
        for data, name, code in mutmut.collect_source_file_mutation_data(mutant_names=())[0]:
            if _status(code) not in KILLED:
                data.exit_code_by_key[name] = None
                data.save()
    mutmut._run((), 1)
    listed = {" ".join(line.split()) for line in PAGE.read_text().splitlines()}
    killed, living, unlisted = 0, 0, 0
    for data, name, code in mutmut.collect_source_file_mutation_data(mutant_names=())[0]:
        if (status := _status(code)) in KILLED:
            killed += 1
            continue
        living += 1
        module, _, function = name.rpartition(".")
        row = _row(module, function, get_diff_for_mutant(name, path=data.path))
        if not any(line.startswith(row) for line in listed):
            unlisted += 1
            print(f"{row} {status}: {name} |")
    print(
        f"{killed + living} mutants, {killed} killed, {living} live, {unlisted} of them not listed."
    )
    return 1 if unlisted else 0


def _status(code: int | None) -> str:
    from mutmut.stats import status_by_exit_code

    return str(status_by_exit_code[code])


def _words(node: BaseString) -> Iterator[BaseString]:
    """Change names, not prose: no test compares the whole text of an error."""
    if isinstance(node, SimpleString) and _WORD.fullmatch(node.value):
        yield node.with_changes(value=f"{node.value[:-1]}XX{node.value[-1]}")


def _row(module: str, function: str, diff: str) -> str:
    """Return the beginning of a mutant's row on the page: where it is, and what it makes of the code."""
    function = re.sub(r"^x_|__mutmut_\d+$", "", function)
    function = function.removeprefix("xǁ").replace("ǁ", ".")
    made, lost = (
        " ".join(line[1:].strip() for line in diff.splitlines() if re.match(sign, line))
        for sign in (r"[+](?![+])", r"-(?!-)")
    )
    code = (made if made.strip(")") else f"without {lost}").replace("|", "\\|")
    return f"| `{module.removeprefix('abeyance.core.')}.{function}` | `{' '.join(code.split())}` |"


if __name__ == "__main__":
    main()
