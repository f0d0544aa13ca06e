"""Reserve a data directory and loopback ports for a stack."""

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

_NON_EPHEMERAL: Final = range(15_000, 32_000)
"""Below the ephemeral ports: an outgoing connection could take one of those before our server listens."""
_TRIES: Final = 50

CLOSED_TO_BROWSERS: Final = (
    *(6669, 6668, 6667, 6666, 6665, 6697, 10_080, 6566, 1719, 1720, 1723, 3659),
    *(5061, 5060, 4045, 2049, 6000),
)
"""The unprivileged ports that browsers block (https://fetch.spec.whatwg.org/#port-blocking). Those still
used by servers come last."""


@contextlib.contextmanager
def claim_ports(data_dir: Path) -> Iterator[Path]:
    """Create the data directory and its folder `logs`, and lock it for this process.

    An unused new directory is removed afterwards. The lock ends with the process. Raises SettingsError
    if the directory is not writable, or another stack uses it.
    """
    data_dir = data_dir.absolute()
    is_new = not data_dir.exists()
    logs, path = data_dir / "logs", data_dir / "lock"
    try:
        # It holds the data of runs: only the owner may read it. An existing directory keeps its
        # permissions, and only our files in it are restricted.
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        logs.mkdir(mode=0o700, exist_ok=True)
        logs.chmod(0o700)
        lock = path.open("a+")
    except OSError as error:
        raise SettingsError(
            f"the data directory {data_dir} is not writable ({error.strerror}): choose another with "
            "--data-dir"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise SettingsError(
                f"the data directory {data_dir} is in use by another stack (process {lock.read()}): stop "
                "that stack, or choose another directory with --data-dir"
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


def free_ports(host: str, requested: Mapping[str, int]) -> dict[str, int]:
    """Return distinct ports by option, with each 0 replaced by a free one.

    Raises SettingsError, naming the option, if a port is in use.
    """
    ports = dict(requested)
    with contextlib.ExitStack() as opened:
        # Fixed ports first, so that none of them is picked as a free one.
        for option, port in sorted(requested.items(), key=lambda item: item[1] == 0):
            try:
                probe = _listen(host, port) if port else _listen_on_free_port(host)
            except OSError as error:
                raise SettingsError(
                    f"the port {port} on {host} cannot be used ({error.strerror}): stop the process that "
                    f"listens there, or choose another port with {option} (0 picks a free one)"
                ) from error
            ports[option] = opened.enter_context(probe).getsockname()[1]
    return ports


@contextlib.contextmanager
def closed_to_browsers(host: str, count: int) -> Iterator[tuple[int, ...]]:
    """Reserve free ports that browsers block, until the context ends.

    Stacks compete for these few ports, so each reserves the UDP port of the same number, which nothing
    else uses and the system releases when the process dies. Raises SettingsError if too few are free.
    """
    with contextlib.ExitStack() as claims:
        ports: list[int] = []
        for port in CLOSED_TO_BROWSERS:
            if len(ports) == count:
                break
            claim = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            try:
                claim.bind((host, port))
                _listen(host, port).close()
            except OSError:
                claim.close()
                continue
            claims.enter_context(claim)
            ports.append(port)
        if len(ports) < count:
            raise SettingsError(
                f"Temporal's HTTP needs {count} ports that browsers block, and only {len(ports)} are "
                "free: stop another stack, or what listens on "
                f"{', '.join(map(str, CLOSED_TO_BROWSERS))}"
            )
        yield tuple(ports)


def _listen_on_free_port(host: str) -> socket.socket:
    for _ in range(_TRIES - 1):
        with contextlib.suppress(OSError):
            return _listen(host, secrets.choice(_NON_EPHEMERAL))
    return _listen(host, secrets.choice(_NON_EPHEMERAL))


def _listen(host: str, port: int) -> socket.socket:
    probe = socket.socket()
    try:
        # As servers do: ignore connections in TIME_WAIT.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
        probe.listen()
    except OSError:
        probe.close()
        raise
    return probe
