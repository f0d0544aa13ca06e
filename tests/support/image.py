"""The image of the Dockerfile, built and run by Debian's podman with the same restrictions as in
production.

debootstrap makes the base image, unless PYTHON_IMAGE names one that podman can fetch. No step of the
build asks a package index, because pip fetches the wheels before. `out/image` keeps base and wheels.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
_KEPT: Final = ROOT / "out" / "image"
_SUITE: Final = "bookworm"
_BASE: Final = "localhost/python:bookworm"
_PROGRAMS: Final = {
    "podman": "podman",
    "runc": "runc",
    "debootstrap": "debootstrap",
    "/usr/libexec/podman/catatonit": "catatonit",
}
_LISTS: Final = ("requirements-build.txt", "requirements.txt")
_BUILT_WITHIN: Final = 900
_INSIDE: Final = {"no-index": "true", "find-links": "/wheelhouse", "disable-pip-version-check": "1"}
_CONFINED: Final = (
    *("--read-only", "--read-only-tmpfs=false", "--tmpfs", "/tmp"),  # noqa: S108
    *("--cap-drop", "all", "--security-opt", "no-new-privileges"),
)
"""The restrictions that docker-compose.yml (`x-read-only`) and the chart set for all our processes."""


@dataclass(frozen=True, slots=True)
class Said:
    """The exit code and the output of a command."""

    code: int
    out: str
    errors: str


class Container:
    """A started container, with its log in a file."""

    def __init__(
        self, podman: Podman, name: str, process: subprocess.Popen[bytes], log: Path
    ) -> None:
        self.name = name
        self.log = log
        self.process = process
        self._podman = podman

    @property
    def text(self) -> str:
        """The log of the container."""
        return self.log.read_text(encoding="utf-8")

    def python(self, program: str) -> str:
        """Run a Python program in the container as the same user, and return its output."""
        return self._podman.call("exec", self.name, "python", "-c", program).out

    def stop(self) -> int:
        """Stop the container, and return its exit code: 137 if it was killed after the grace period."""
        self._podman.call("stop", "--time", "45", self.name)
        return self.process.wait(60)


class Podman:
    """Podman, with a temporary store."""

    def __init__(self, folder: Path) -> None:
        self._command = (
            *("podman", "--root", str(folder / "store"), "--runroot", str(folder / "run")),
            *("--tmpdir", str(folder / "tmp"), "--cgroup-manager", "cgroupfs"),
            *("--runtime", "runc", "--events-backend", "none"),
        )

    def tried(self, *arguments: str, seconds: float = 120) -> Said:
        """Run a command to its end."""
        done = subprocess.run(
            [*self._command, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        return Said(done.returncode, done.stdout, done.stderr)

    def call(self, *arguments: str, seconds: float = 120) -> Said:
        """Run a command, and check that it succeeds."""
        said = self.tried(*arguments, seconds=seconds)
        assert said.code == 0, f"{arguments}\n{said.out}\n{said.errors}"
        return said

    def started(self, *arguments: str, log: Path) -> subprocess.Popen[bytes]:
        """Start a command whose output goes to a file."""
        with log.open("wb") as out:
            return subprocess.Popen(
                [*self._command, *arguments], stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )

    def remove_all(self) -> None:
        """Stop and remove all containers, and remove all images."""
        self.tried("rm", "--all", "--force", "--time", "0")
        self.tried("rmi", "--all", "--force")


class Image:
    """The built image. Its containers share the network of this machine."""

    def __init__(self, podman: Podman, name: str, folder: Path) -> None:
        self.podman = podman
        self.name = name
        self._folder = folder

    def run(
        self,
        *arguments: str,
        variables: Mapping[str, str] | None = None,
        mounts: Mapping[Path, str] | None = None,
        image: str | None = None,
    ) -> Said:
        """Run a command of the image to its end."""
        options = self._options(variables or {}, mounts or {})
        return self.podman.tried("run", "--rm", *options, image or self.name, *arguments)

    @contextlib.contextmanager
    def container(
        self, *arguments: str, variables: Mapping[str, str], mounts: Mapping[Path, str]
    ) -> Iterator[Container]:
        """Start a container, and kill it at the end if it still runs."""
        name = f"abeyance-{arguments[0]}-{uuid.uuid4().hex[:8]}"
        log = self._folder / f"{name}.log"
        options = ("--name", name, *self._options(variables, mounts))
        process = self.podman.started("run", *options, self.name, *arguments, log=log)
        try:
            yield Container(self.podman, name, process, log)
        finally:
            self.podman.tried("rm", "--force", "--time", "0", name)
            process.wait(60)

    def with_file(self, path: Path, to: str) -> str:
        """Build an image on top of this one with a file in it, as users do to deploy a graph."""
        name = f"localhost/with-{path.stem}"
        recipe = f"FROM {self.name}\nCOPY {path.name} {to}\n"
        (path.parent / "Dockerfile").write_text(recipe, encoding="utf-8")
        self.podman.call("build", "--isolation", "chroot", "--tag", name, str(path.parent))
        return name

    def _options(self, variables: Mapping[str, str], mounts: Mapping[Path, str]) -> Iterator[str]:
        yield from ("--init", "--network", "host", "--http-proxy=false", *_CONFINED)
        # Podman would raise these limits by default, which needs CAP_SYS_RESOURCE.
        for kind, number in (("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC)):
            most = resource.getrlimit(number)[1]
            yield f"--ulimit={kind}={_within(most)}:{_within(most)}"
        for name, value in variables.items():
            yield f"--env={name}={value}"
        for path, place in mounts.items():
            yield f"--volume={path}:{place}:ro"


def _within(most: int) -> int:
    wanted = 4096
    return wanted if most == resource.RLIM_INFINITY else min(most, wanted)


@contextlib.contextmanager
def built_image() -> Iterator[Image]:
    """Build the image of the current Dockerfile; skip the test if this machine cannot build one."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount the layers of an image, and run debootstrap")
    if missing := [package for name, package in _PROGRAMS.items() if shutil.which(name) is None]:
        pytest.skip(f"not installed: apt-get install {' '.join(missing)}")
    folder = Path(tempfile.mkdtemp(prefix="abeyance-image-"))
    podman = Podman(folder)
    try:
        name = f"localhost/abeyance:{uuid.uuid4().hex[:8]}"
        _build(podman, name, folder)
        yield Image(podman, name, folder)
    finally:
        podman.remove_all()
        # Removing the folder must not empty a layer that is still mounted.
        for mounted in _mounts_below(folder):
            subprocess.run(["umount", "--lazy", mounted], check=False)
        shutil.rmtree(folder)


def _build(podman: Podman, name: str, folder: Path) -> None:
    base = os.environ.get("PYTHON_IMAGE") or _BASE
    if base == _BASE:
        imported = podman.tried("import", str(_made_base()), base, seconds=_BUILT_WITHIN)
        if imported.code != 0:
            pytest.skip(f"this machine lets podman keep no image: {imported.errors.strip()}")
    config = folder / "pip.conf"
    lines = ["[global]", *(f"{name} = {value}" for name, value in _INSIDE.items())]
    config.write_text("\n".join(lines), encoding="utf-8")
    podman.call(
        *("build", "--isolation", "chroot", "--network", "host", "--layers=false"),
        f"--volume={config}:/etc/pip.conf:ro",
        f"--volume={_wheels()}:/wheelhouse:ro",
        *("--build-arg", f"PYTHON_IMAGE={base}", "--tag", name, str(ROOT)),
        seconds=_BUILT_WITHIN,
    )
    tried = Image(podman, name, folder).run("--version")
    if re.search(r"OCI|crun|runc", tried.errors):
        pytest.skip(f"this machine lets podman run no container: {tried.errors.strip()}")


def _made_base() -> Path:
    """Return a file with a small Debian that has `python` and `pip`, as the Dockerfile expects."""
    made = _KEPT / f"{_SUITE}.tar"
    if not made.exists():
        _KEPT.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="abeyance-base-") as folder:
            root = Path(folder) / "root"
            packages = "--include=python3,python3-pip,python-is-python3"
            _run("debootstrap", "--variant=minbase", packages, _SUITE, str(root))
            for each in root.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
                each.unlink()
            part = made.with_suffix(".part")
            unwanted = ("--exclude=./var/cache/apt", "--exclude=./var/lib/apt/lists")
            _run("tar", "-C", str(root), *unwanted, "-cf", str(part), ".")
            part.rename(made)
    return made


def _wheels() -> Path:
    """Return a folder with the wheels of all packages in the image's requirements files."""
    texts = [(ROOT / "deploy" / name).read_bytes() for name in _LISTS]
    made = _KEPT / f"wheels-{hashlib.sha256(b''.join(texts)).hexdigest()[:12]}"
    if not made.exists():
        part = made.with_suffix(".part")
        lists = [part for name in _LISTS for part in ("-r", str(ROOT / "deploy" / name))]
        _run(
            *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"),
            *("--only-binary", ":all:", "--python-version", "3.11", "--dest", str(part), *lists),
        )
        part.rename(made)
    return made


def _run(*command: str) -> None:
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_BUILT_WITHIN,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


def _mounts_below(folder: Path) -> list[str]:
    """Return every mount point below a folder, innermost first."""
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    places = [line.split()[4] for line in lines]
    return sorted((each for each in places if each.startswith(f"{folder}/")), reverse=True)
