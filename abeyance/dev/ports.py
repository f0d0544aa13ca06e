"""What a stack takes of this machine for itself: a data directory, and ports on loopback."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from abeyance.errors import SettingsError

_NOT_LENT: Final = range(15_000, 32_000)
"""Below what systems lend to connections that go out: one of those may be taken by such a connection in
the seconds until our server listens on it."""
_TRIES: Final = 50

CLOSED_TO_BROWSERS: Final = (
    *(6669, 6668, 6667, 6666, 6665, 6697, 10_080, 6566, 1719, 1720, 1723, 3659),
    *(5061, 5060, 4045, 2049, 6000),
)
"""Ports to which no browser connects, whatever page asks it to: from the list of the Fetch standard
(https://fetch.spec.whatwg.org/#port-blocking), those that need no rights. Last stand those that servers
are still seen on."""


@contextlib.contextmanager
def claim_ports(data_dir: Path) -> Iterator[Path]:
    """The data directory with a folder `logs` in it, ours alone; made if it is not there.

    A directory that was made and not used is gone again afterwards. The system drops the claim when
    its holder dies. Raises SettingsError if it cannot be written, or somebody else has it.
    """
    data_dir = data_dir.absolute()
    is_new = not data_dir.exists()
    logs, path = data_dir / "logs", data_dir / "lock"
    try:
        # What runs were told stands in here: it is nobody else's to read. A folder that was there before
        # us keeps the rights that its owner gave it, and only what is ours in it is closed.
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        logs.mkdir(mode=0o700, exist_ok=True)
        logs.chmod(0o700)
        lock = path.open("a+")
    except OSError as error:
        raise SettingsError(
            f"the data directory {data_dir} cannot be written ({error.strerror}): choose another with "
            "--data-dir"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise SettingsError(
                f"the data directory {data_dir} is used by another stack (process {lock.read()}): stop "
                "that one, or choose another directory with --data-dir"
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        try:
            yield data_dir
        finally:
            if is_new and {*data_dir.iterdir()} == {logs, path} and not [*logs.iterdir()]:
                path.unlink()
                logs.rmdir()
                data_dir.rmdir()


def free_ports(host: str, wanted: Mapping[str, int]) -> dict[str, int]:
    """The port for each option, where 0 is replaced by one that is free; no two are the same.

    Raises SettingsError naming the option whose port is in use.
    """
    found = dict(wanted)
    with contextlib.ExitStack() as opened:
        # First those that are named, so that none of them is taken for one that is free.
        for option, port in sorted(wanted.items(), key=lambda item: item[1] == 0):
            try:
                probe = _listening(host, port) if port else _anywhere(host)
            except OSError as error:
                raise SettingsError(
                    f"the port {port} on {host} cannot be used ({error.strerror}): stop what listens "
                    f"there, or choose another with {option} (0 takes any that is free)"
                ) from error
            found[option] = opened.enter_context(probe).getsockname()[1]
    return found


@contextlib.contextmanager
def closed_to_browsers(host: str, count: int) -> Iterator[tuple[int, ...]]:
    """So many free ports to which no browser connects, ours alone until the context ends.

    There are few of them, and every stack of the machine wants some: who takes one holds the UDP port of
    the same number, which nobody else uses and the system takes back from whoever dies. Raises
    SettingsError if not enough are free.
    """
    with contextlib.ExitStack() as held:
        found: list[int] = []
        for port in CLOSED_TO_BROWSERS:
            if len(found) == count:
                break
            claim = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            try:
                claim.bind((host, port))
                _listening(host, port).close()
            except OSError:
                claim.close()
                continue
            held.enter_context(claim)
            found.append(port)
        if len(found) < count:
            raise SettingsError(
                f"Temporal's own HTTP is put on ports to which no browser connects, and of these only "
                f"{len(found)} are free, where {count} are needed: stop another stack, or what listens "
                f"on {', '.join(map(str, CLOSED_TO_BROWSERS))}"
            )
        yield tuple(found)


def _anywhere(host: str) -> socket.socket:
    for _ in range(_TRIES - 1):
        with contextlib.suppress(OSError):
            return _listening(host, secrets.choice(_NOT_LENT))
    return _listening(host, secrets.choice(_NOT_LENT))


def _listening(host: str, port: int) -> socket.socket:
    probe = socket.socket()
    try:
        # As servers do it: a connection that was closed a moment ago is no hindrance.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
        probe.listen()
    except OSError:
        probe.close()
        raise
    return probe
