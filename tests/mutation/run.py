"""Mutation tests of the core: change one thing in it at a time, and see whether a test notices.

mutmut makes the mutants, and knows which tests reach each of them. This program prepares a copy of the
code, leaves out mutants that no test could notice, and compares the survivors with survivors.md.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from resource import RLIMIT_DATA, setrlimit
from typing import Final

import pytest
from libcst import BaseString, Call, CSTNode, Match, Module, Name, SimpleString

ROOT: Final = Path(__file__).parents[2]
LISTED: Final = ROOT / "tests/mutation/survivors.md"
PLACE: Final = ROOT / "out/mutation"
# Files that the tests of the core import, beside the package itself.
BESIDE: Final = (
    "activities",
    "api",
    "workflows",
    "tests/core",
    "tests/support",
    "tests/conftest.py",
)
# Random runs are slow, and reach all code. A mutant that only they notice deserves its own example.
RANDOM: Final = ("run_stateful",)
# The first compares times, and takes as long as a third of all other tests. The second reads the source
# files, which contain every mutant here.
LEFT_OUT: Final = (
    "test_tables.py::test_an_item_of_a_fan_out_costs_the_same_however_many_there_are",
    "test_visit.py::test_no_other_module_of_the_core_sets_the_state_of_a_visit",
)
# A mutant that never returns is killed after this many seconds in one test, or at this much memory.
HANGS: Final = 20
MEMORY: Final = 3 * 1024**3
KILLED: Final = ("killed", "timeout")
UNCHANGED: Final = "abeyance.core.nothing"
# Calls that only the type checker reads: no test that runs the code can notice a mutant of them.
TYPED: Final = ("assert_never", "cast")
_SETTINGS: Final = """
[tool.mutmut]
source_paths = ["abeyance/core"]
only_mutate = {modules}
pytest_add_cli_args = {arguments}
pytest_add_cli_args_test_selection = {selection}
use_git_change_detection = false
track_dependencies = false
timeout_multiplier = 5.0
timeout_constant = 20.0
"""
_WORD: Final = re.compile(r"""["'][^\s"']+["']""")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="+", help="votes, edits, ..., or `all`")
    parser.add_argument("--tests", nargs="*", default=(), help="only these files of tests/core")
    parser.add_argument("--again", action="store_true", help="only what lived the last time")
    options = parser.parse_args()
    known = sorted(path.stem for path in (ROOT / "abeyance/core").glob("[a-z]*.py"))
    modules = known if options.modules == ["all"] else options.modules
    if unknown := sorted({*modules} - {*known}):
        sys.exit(f"abeyance/core has no {', '.join(unknown)}. It has {', '.join(known)}.")
    # The name of a folder has at most 255 bytes.
    place = PLACE / "-".join(options.modules)[:200]
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
    # Nobody reads the reports of failed tests.
    arguments += ["--assert=plain", "--tb=no", f"--timeout={HANGS}"]
    arguments += [f"--ignore=tests/core/test_{name}.py" for name in RANDOM]
    arguments += [f"--deselect=tests/core/{test}" for test in LEFT_OUT]
    settings = _SETTINGS.format(
        modules=[f"abeyance/core/{name}.py" for name in modules],
        arguments=arguments,
        selection=tests or ["tests/core"],
    )
    project = (ROOT / "pyproject.toml").read_text()
    (place / "pyproject.toml").write_text(project + settings)


def _run(*, only_living: bool) -> int:
    from mutmut import __main__ as mutmut
    from mutmut import stats
    from mutmut.mutation.mutators import mutation_operators
    from mutmut.runners.harness import PytestRunner
    from mutmut.workers.isolation import ForkRunner

    if not sys.stdout.isatty():
        # The spinner would fill a file with a line for each mutant.
        stats.print_status = mutmut.print_status = lambda *_, **__: None
    mutation_operators[:] = [
        (kind, _words if kind is BaseString else _telling(operator))
        for kind, operator in mutation_operators
    ]
    startup, items = ForkRunner.startup, dict[str, pytest.Item]()

    def collect_once(self: ForkRunner) -> None:
        items.update(_collected())
        startup(self)
        self.submit(UNCHANGED, [*items], cpu_time_limit=600, estimated_time=100)
        if self.wait_for_result().exit_code:
            sys.exit("This test fails although nothing was changed.")

    def run_collected(self: PytestRunner, *, mutant_name: str | None, tests: Iterable[str]) -> int:
        if mutant_name is None:
            return int(run_tests(self, mutant_name=None, tests=tests))
        os.chdir("mutants")
        setrlimit(RLIMIT_DATA, (MEMORY, MEMORY))
        chosen = [items[test] for test in _nearest_first(mutant_name, tests)]
        for item, after in zip(chosen, [*chosen[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            if item.session.testsfailed:
                if mutant_name == UNCHANGED:
                    os.write(2, f"{item.nodeid}\n".encode())
                return 1
        return 0

    run_tests = PytestRunner.run_tests
    ForkRunner.startup = collect_once
    ForkRunner.run_clean_tests = lambda *_, **__: 0
    PytestRunner.run_tests = run_collected
    # mutmut 3.8 reads `_nodeid`; pytest 9.2 only has the public `nodeid`.
    pytest.Item._nodeid = property(lambda item: item.nodeid)  # type: ignore[attr-defined]
    if only_living:
        for data, name, code in mutmut.collect_source_file_mutation_data(mutant_names=())[0]:
            if _status(code) not in KILLED:
                data.exit_code_by_key[name] = None
                data.save()
    mutmut._run((), 1)
    return _compared()


def _compared() -> int:
    """Print survivors without a row, and rows without a survivor. Return 1 if there are any, else 0."""
    from mutmut import __main__ as mutmut
    from mutmut.mutation.diff_apply import get_diff_for_mutant

    listed = [" ".join(line.split()) for line in LISTED.read_text().splitlines()]
    counts, unlisted, needed = Counter[tuple[str, bool]](), 0, set[str]()
    for data, name, code in mutmut.collect_source_file_mutation_data(mutant_names=())[0]:
        module, _, function = name.removeprefix("abeyance.core.").rpartition(".")
        killed = (status := _status(code)) in KILLED
        counts[module, killed] += 1
        if not killed:
            row = _row(module, function, get_diff_for_mutant(name, path=data.path))
            known = {line for line in listed if line.startswith(row)}
            needed |= known
            if not known:
                unlisted += 1
                print(f"{row} {status}: {name} |")
    modules = sorted({module for module, _ in counts})
    for module in modules:
        print(f"{module}: {counts[module, True]} killed, {counts[module, False]} live")
    rows = [line for line in listed if line.startswith(tuple(f"| `{each}." for each in modules))]
    stale = [row for row in rows if row not in needed]
    for row in stale:
        print(f"No survivor: {row}")
    print(
        f"{counts.total()} mutants, {unlisted} live and are not listed, {len(stale)} rows too many."
    )
    return 1 if unlisted or stale else 0


def _collected() -> dict[str, pytest.Item]:
    """Collect the tests once before any fork: for one mutant, collecting takes longer than testing."""
    from _pytest.config import _prepareconfig
    from mutmut.configuration import config as mutation

    with contextlib.chdir("mutants"), redirect_stdout(io.StringIO()):
        arguments = ["--rootdir=.", "--capture=no", *mutation().pytest_add_cli_args]
        config = _prepareconfig([*arguments, *mutation().pytest_add_cli_args_test_selection])
        session = pytest.Session.from_config(config)
        config._do_configure()
        config.hook.pytest_sessionstart(session=session)
        config.hook.pytest_collection(session=session)
    return {item.nodeid: item for item in session.items}


def _status(code: int | None) -> str:
    from mutmut.stats import status_by_exit_code

    return str(status_by_exit_code[code])


def _words(node: BaseString) -> Iterator[BaseString]:
    """Change names, not prose: no test compares the whole text of an error."""
    if isinstance(node, SimpleString) and _WORD.fullmatch(node.value):
        yield node.with_changes(value=f"{node.value[:-1]}XX{node.value[-1]}")


def _telling(
    operator: Callable[[CSTNode], Iterable[CSTNode]],
) -> Callable[[CSTNode], list[CSTNode]]:
    """Leave out mutants that only the type checker can tell from the original."""

    def telling(node: CSTNode) -> list[CSTNode]:
        match node:
            case Call(func=Name(value=name)) if name in TYPED:
                return []
            case Match(cases=[*_, last]) if "assert_never" in Module([]).code_for_node(last):
                made = (each for each in operator(node) if isinstance(each, Match))
                return [each for each in made if each.cases[-1] is last]
            case _:
                return [*operator(node)]

    return telling


def _nearest_first(mutant: str | None, tests: Iterable[str]) -> list[str]:
    """Sort the tests: those of the mutant's own module come first."""
    module = "" if mutant is None else mutant.split(".")[2]
    return sorted(tests, key=lambda test: not Path(test).name.startswith(f"test_{module}"))


def _row(module: str, function: str, diff: str) -> str:
    """Return the beginning of a mutant's row on the page: its place, and its changed code."""
    function = re.sub(r"^x_|__mutmut_\d+$", "", function)
    function = function.removeprefix("xǁ").replace("ǁ", ".")
    made, lost = (
        " ".join(line[1:].strip() for line in diff.splitlines() if re.match(sign, line))
        for sign in (r"[+](?![+])", r"-(?!-)")
    )
    code = (made if made.strip(")") else f"without {lost}").replace("|", "\\|")
    return f"| `{module}.{function}` | `{' '.join(code.split())}` |"


if __name__ == "__main__":
    main()
