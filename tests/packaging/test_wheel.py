"""The wheel, in an environment of its own, beside a package that owns the name `workflows`.

One build and one environment serve all tests: run `pytest tests/packaging`.
"""

import json
import os
import shutil
import stat
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("activities", "api", "workflows")
NEIGHBOUR = "llama-index-workflows==2.26.1"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RELEASE = f"{PROJECT['name']}-{PROJECT['version']}"


class Built(NamedTuple):
    wheel: Path
    sdist: Path


def run(*command: str | Path, cwd: Path) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        command, cwd=cwd, env=clean, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    # From a copy, so that the build leaves nothing in the checkout.
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
    """The folder of the programs of an environment that has the wheel and its neighbour."""
    home = tmp_path_factory.mktemp("environment")
    # The pip that runs the tests serves the new environment too: it need not get one of its own.
    venv.create(home, with_pip=False, symlinks=True)
    folder = home / ("Scripts" if os.name == "nt" else "bin")
    pip = (sys.executable, "-m", "pip", "--python", folder / "python")
    install = (*pip, "install", "--no-compile")
    # As the image does it.
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


def test_the_console_script_explains_itself(scripts: Path) -> None:
    said = run(scripts / "abeyance", "--help", cwd=scripts)

    assert "Usage" in said
