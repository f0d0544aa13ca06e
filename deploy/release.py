"""`make release`: build what the checked out commit releases, check it, and tag it.

Nothing is published, and nothing is signed that was not checked: the wheel and the source are built twice
from the commit alone, and have to be the same; their sums are read back; a tag that cannot be verified
is deleted again.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from email.parser import HeaderParser
from pathlib import Path
from typing import Final

_SUMS: Final = "SHA256SUMS"


class ReleaseError(Exception):
    """Why nothing is released, and what to do."""


def released(root: Path, out: Path) -> list[str]:
    """Build the release of a checkout into the folder `out`, tag it, and return what was done.

    Raises ReleaseError. Then there is no tag.
    """
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    version = project["version"]
    tag = f"v{version}"
    _check(root, version, tag)
    with tempfile.TemporaryDirectory(prefix="release-") as folder:
        files, again = (_built(root, Path(folder) / each) for each in ("first", "second"))
        for one, other in zip(files, again, strict=True):
            if _contents(one) != _contents(other):
                raise ReleaseError(
                    f"{one.name} has other contents when it is built again: a build must depend on the "
                    "commit alone"
                )
        _check_wheel(next(each for each in files if each.suffix == ".whl"), project)
        sums = "".join(f"{_sum(each)}  {each.name}\n" for each in files)
        out.mkdir(parents=True, exist_ok=True)
        for each in files:
            shutil.copy(each, out)
    (out / _SUMS).write_text(sums, encoding="utf-8")
    for line in sums.splitlines():
        known, _, name = line.partition("  ")
        if _sum(out / name) != known:
            raise ReleaseError(f"{out / name} was not written as it was built: is the disk full?")
    done = [f"built {name}" for name in (*(each.name for each in files), _SUMS)]
    return [*done, _tagged(root, tag)]


def _check(root: Path, version: str, tag: str) -> None:
    if dirty := _git(root, "status", "--porcelain"):
        raise ReleaseError(f"the checkout has changes ({dirty.split()[-1]}, ...): commit them")
    if _git(root, "tag", "--list", tag):
        raise ReleaseError(f"{tag} was released before: raise the version in pyproject.toml")
    heading = re.compile(rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)$", re.MULTILINE)
    changes = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    if heading.search(changes) is None:
        raise ReleaseError(
            f"CHANGELOG.md has no section `## {version} (YYYY-MM-DD)`: give it what is under "
            "`## Unreleased`"
        )


def _built(root: Path, folder: Path) -> list[Path]:
    """Build from what git has of the commit, and return the wheel and the source, sorted by name."""
    source, out = folder / "source", folder / "out"
    source.mkdir(parents=True)
    archive = folder / "commit.tar"
    _git(root, "archive", "--output", str(archive), "HEAD")
    with tarfile.open(archive) as commit:
        commit.extractall(source, filter="tar")
    time = _git(root, "log", "-1", "--format=%ct")
    _run(
        [sys.executable, "-m", "build", "--outdir", str(out), str(source)],
        cwd=folder,
        SOURCE_DATE_EPOCH=time,
    )
    return sorted(out.iterdir())


def _contents(file: Path) -> dict[str, str]:
    """Return the sum of each file in a wheel or a source distribution."""
    if file.suffix == ".whl":
        with zipfile.ZipFile(file) as wheel:
            return {name: _sum_of(wheel.read(name)) for name in wheel.namelist()}
    with tarfile.open(file) as source:
        found = {}
        for member in source.getmembers():
            content = source.extractfile(member)
            found[member.name] = "" if content is None else _sum_of(content.read())
        return found


def _check_wheel(wheel: Path, project: dict[str, str]) -> None:
    name = f"{project['name']}-{project['version']}.dist-info/METADATA"
    with zipfile.ZipFile(wheel) as archive:
        said = HeaderParser().parsestr(archive.read(name).decode())
    for field in ("name", "version"):
        if said[field] != project[field]:
            raise ReleaseError(f"the wheel says {field} {said[field]!r}, not {project[field]!r}")


def _tagged(root: Path, tag: str) -> str:
    if not _git(root, "config", "--default", "", "--get", "user.signingkey"):
        return (
            f"not tagged, because git has no user.signingkey: set one, and run `git tag -s {tag}`"
        )
    _git(root, "tag", "--sign", tag, "--message", tag)
    try:
        _git(root, "tag", "--verify", tag)
    except ReleaseError as error:
        _git(root, "tag", "--delete", tag)
        raise ReleaseError(f"the signature of {tag} cannot be verified: {error}") from error
    return f"tagged {tag}, and verified its signature: push it, and upload what was built"


def _sum(file: Path) -> str:
    return _sum_of(file.read_bytes())


def _sum_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _git(root: Path, *arguments: str) -> str:
    return _run(["git", *arguments], cwd=root)


def _run(command: list[str], *, cwd: Path, **variables: str) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()[-3:]
        raise ReleaseError(f"`{' '.join(command[:3])} ...` failed: {' '.join(said)}")
    return done.stdout.strip()


def main() -> int:
    """Release the checkout that this file is in, into `out/dist`, and return the exit code."""
    root = Path(__file__).resolve().parents[1]
    try:
        print("\n".join(released(root, root / "out" / "dist")))
    except ReleaseError as error:
        print(f"nothing is released: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
