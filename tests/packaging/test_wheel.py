"""The wheel in its own environment, beside a package that owns the name `workflows`.

All tests share one build, and all but those of the README one environment: run `pytest tests/packaging`.
"""

import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from dev_stack import ANY_PORTS, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("activities", "api", "workflows")
NEIGHBOUR = "llama-index-workflows==2.26.1"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RELEASE = f"{PROJECT['name']}-{PROJECT['version']}"


class Built(NamedTuple):
    wheel: Path
    sdist: Path


def tried(*command: str | Path, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=cwd,
        env=clean(**variables),
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


def clean(**variables: str) -> dict[str, str]:
    """Return the variables of a user who has set none of ours."""
    ours = ("ABEYANCE_", "PYTHON", "TEMPORAL_")
    return {
        name: value for name, value in os.environ.items() if not name.startswith(ours)
    } | variables


def run(*command: str | Path, cwd: Path, **variables: str) -> str:
    done = tried(*command, cwd=cwd, **variables)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    # The build works on a copy, so that it leaves nothing in the checkout.
    source = tmp_path_factory.mktemp("source")
    for name in ("LICENSE", "README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, source)
    for name in ("abeyance", *FOLDERS):
        unwanted = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=unwanted)
    run(sys.executable, "-m", "build", "--outdir", source / "dist", source, cwd=source)
    (wheel,) = (source / "dist").glob("*.whl")
    (sdist,) = (source / "dist").glob("*.tar.gz")
    return Built(wheel=wheel, sdist=sdist)


@pytest.fixture(scope="module")
def scripts(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the programs of an environment that has the wheel and its neighbour."""
    home = tmp_path_factory.mktemp("environment")
    # The pip that runs the tests also serves the new environment, which needs none of its own.
    venv.create(home, with_pip=False, symlinks=True)
    folder = home / ("Scripts" if os.name == "nt" else "bin")
    pip = (sys.executable, "-m", "pip", "--python", folder / "python")
    install = (*pip, "install", "--no-compile")
    # The image installs its requirements in the same way.
    requirements = ROOT / "deploy" / "requirements.txt"
    hashed = ("--no-deps", "--require-hashes", "--only-binary", ":all:")
    run(*install, *hashed, "-r", requirements, cwd=home)
    run(*install, "--no-deps", "--no-index", built.wheel, cwd=home)
    run(*pip, "check", cwd=home)
    run(*install, "-c", ROOT / "constraints.txt", NEIGHBOUR, cwd=home)
    return folder


def test_the_wheel_holds_one_package_and_real_files(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        entries = archive.infolist()
    names = {entry.filename for entry in entries}
    expected = {
        f"abeyance/{path.relative_to(ROOT).as_posix()}"
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
    }

    assert {name.split("/")[0] for name in names} == {"abeyance", f"{RELEASE}.dist-info"}
    assert names >= expected | {"abeyance/py.typed"}
    assert not [entry.filename for entry in entries if stat.S_ISLNK(entry.external_attr >> 16)]


def test_the_source_distribution_holds_real_files_too(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        kinds = {entry.name: entry.type for entry in archive.getmembers()}

    for folder in FOLDERS:
        assert kinds[f"{RELEASE}/abeyance/{folder}/__init__.py"] == tarfile.REGTYPE
    assert tarfile.SYMTYPE not in kinds.values()


def test_the_installed_package_and_its_neighbour_keep_their_own_names(scripts: Path) -> None:
    found = json.loads(
        run(
            scripts / "python",
            "-c",
            "import json, importlib.util as u\n"
            "import abeyance, abeyance.activities, abeyance.api, abeyance.worker\n"
            "import abeyance.workflows, workflows\n"
            "print(json.dumps({\n"
            "    'ours': abeyance.workflows.__name__,\n"
            "    'theirs': workflows.Workflow.__module__,\n"
            "    'shadows': [n for n in ('activities', 'api') if u.find_spec(n)],\n"
            "}))",
            cwd=scripts,
        )
    )

    assert found["ours"] == "abeyance.workflows"
    assert found["theirs"].startswith("workflows")
    assert found["shadows"] == []


README = (ROOT / "README.md").read_text(encoding="utf-8")
LETTERS = """\
from agents import Agent, function_tool


@function_tool(needs_approval=True)
def refund(order: str) -> str:
    return "paid"


clerk = Agent(name="clerk", model="gpt-5", tools=[refund])
"""


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


class Reader:
    """A reader who has Python, the wheel and the README, and types what it says in a folder."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder = folder / "work"
        self.folder.mkdir()
        self._wheel = wheel
        self._programs = folder / "environment" / "bin"
        venv.create(folder / "environment", with_pip=False, symlinks=True)

    def install(self, line: str) -> None:
        """Install what a line says of this package, from the wheel."""
        command, verb, what = shlex.split(line)
        extras = what.removeprefix("abeyance")
        assert (command, verb, f"abeyance{extras}") == ("pip", "install", what)
        pip = (sys.executable, "-m", "pip", "--python", self._programs / "python")
        wanted = ("-c", ROOT / "constraints.txt", f"{self._wheel}{extras}")
        run(*pip, "install", "--quiet", "--no-compile", *wanted, cwd=self.folder)

    def type(self, line: str, **variables: str) -> str:
        """Run a command that has to succeed; return its output."""
        return run(*self._words(line), cwd=self.folder, **variables)

    def is_refused(self, line: str) -> str:
        """Run a command that has to fail; return its error."""
        done = tried(*self._words(line), cwd=self.folder)
        assert done.returncode == 2, done
        return done.stderr

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, encoding="utf-8")

    @contextmanager
    def serving(self, line: str) -> Iterator[str]:
        """Run the stack that a line starts, on free ports; yield the address of its API."""
        with (
            (self.folder / "stack.txt").open("wb") as log,
            subprocess.Popen(
                [*self._words(line), *ANY_PORTS],
                cwd=self.folder,
                env=clean(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            ) as process,
        ):
            assert process.stdout is not None
            try:
                said = process.stdout.readline()
                assert "API " in said, (self.folder / "stack.txt").read_text()
                yield said.split("API ")[1].split(",")[0]
                process.terminate()
                assert process.wait(timeout=30) == 0
            finally:
                process.kill()

    def _words(self, line: str) -> list[str]:
        program, *words = shlex.split(line)
        return [str(self._programs / program), *words]


def test_the_readme_is_true_from_its_first_line_to_its_last_with_the_wheel_alone(
    built: Built, tmp_path: Path
) -> None:
    install, _, serve, session = blocks("console")
    graph, test, agent, brought = blocks("python")
    reader = Reader(tmp_path, built.wheel)

    reader.install(install)
    reader.write("refunds.py", graph)
    said = []
    with reader.serving(serve) as url:

        def is_listed() -> bool:
            return "Refund 250 for A-7?" in reader.type("abeyance inbox", ABEYANCE_URL=url)

        for line in session.splitlines():
            if line == "abeyance inbox":
                # The inbox is a moment behind.
                until(is_listed, "the question to be listed")
            said.append(reader.type(line, ABEYANCE_URL=url))
    assert "paid 250 for order A-7" in said[-1]

    reader.write("try_it.py", test)
    reader.type("python try_it.py")

    reader.write("complaints.py", agent)
    assert "extras: agents\n" in reader.type("abeyance worker complaints:graph --check")

    reader.write("letters.py", LETTERS)
    reader.write("desk.py", brought.replace("from letters import clerk", "", 1))
    (needed,) = re.findall(
        r"pip install '.*'", reader.is_refused("abeyance graph check desk:graph")
    )
    reader.install(needed)
    reader.write("desk.py", brought)
    assert "extras: openai-agents\n" in reader.type("abeyance worker desk:graph --check")
