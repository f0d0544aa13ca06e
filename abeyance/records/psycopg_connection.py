"""A connection of psycopg that gives up on a server which has stopped to answer."""

from __future__ import annotations

from typing import Any

from psycopg import Connection, OperationalError, errors


def connection_class(patience: float | None) -> type[Connection[Any]]:
    """Return the class of connections that wait for so many seconds; None for as long as it takes."""
    return Connection if patience is None else type("Patient", (_Patient,), {"patience": patience})


class _Patient(Connection[Any]):
    patience: float

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        """Wait for the server; close the connection if it does not answer in time."""
        if timeout is not None:
            return super().wait(gen, interval, timeout)
        try:
            return super().wait(gen, interval, self.patience)
        except errors._WaitTimeout as error:  # noqa: SLF001  (it has no other name)
            # The statement may be under way still, and its result would be taken for that of the next.
            self.close()
            raise OperationalError(
                f"the server did not answer within {self.patience:g} s"
            ) from error
