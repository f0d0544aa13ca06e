"""The imports of the command line decide how fast it starts: in 0.4 s, which a clock cannot test."""

import subprocess
import sys

import pytest

import abeyance

HEAVY = {"fastapi", "jsonschema_rs", "mcp", "pydantic_ai", "temporalio", "uvicorn", "abeyance.wire"}
"""Each of these costs a tenth of a second or more."""
SCRIPT = """
import sys
from abeyance.cli.main import run
code = max(run(line.split()) for line in sys.argv[1:])
print(*sys.modules, file=sys.stderr)
sys.exit(code)
"""


def imported(*lines: str) -> tuple[int, str, set[str]]:
    """Run commands in one process; return the worst exit code, the output, and the imported modules."""
    made = subprocess.run(
        [sys.executable, "-P", "-c", SCRIPT, *lines],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return made.returncode, made.stdout, set(made.stderr.split())


def test_help_and_version_import_no_library_but_that_of_the_command_line() -> None:
    code, out, modules = imported("--version", "--help", "run --help")

    assert (code, bool(out)) == (0, True)
    assert not modules & (HEAVY | {"httpx", "pydantic_settings", "sqlalchemy"})


def test_a_call_imports_the_http_client_and_the_settings_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ABEYANCE_URL", "http://127.0.0.1:1")

    code, _, modules = imported("list")

    assert code == 4
    assert "httpx" in modules
    assert not modules & HEAVY


def test_the_package_lists_its_public_names_and_imports_each_at_its_first_use() -> None:
    assert {"Agent", "Client", "Graph", "tool", "__version__"} <= set(dir(abeyance))
    assert "annotations" not in dir(abeyance)
    assert all(getattr(abeyance, name) is not None for name in dir(abeyance))
    assert abeyance.__version__[0].isdigit()
