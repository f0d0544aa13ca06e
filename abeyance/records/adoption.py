"""The records of a namespace that was lost, taken over by the one that replaces it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, delete, exists, func, select, update

from abeyance.errors import SettingsError
from abeyance.records.database import Scope
from abeyance.records.tables import deployments, followers, metadata, runs


@dataclass(frozen=True, slots=True)
class Other:
    """A deployment with the same task queue in a namespace of another id, and how many runs it has."""

    namespace: str
    runs: int


def others(connection: Connection, scope: Scope) -> Sequence[Other]:
    """Return the deployments whose records a deployment could adopt; none if it has records itself."""
    own = _id(connection, scope)
    if own is not None and _has_records(connection, own):
        return []
    return _others(connection, scope)


def adopt(connection: Connection, scope: Scope, namespace: str) -> None:
    """Give the records of a namespace of another id to a deployment, which must have none itself.

    Processes that know the deployment's row must not run meanwhile. Raises SettingsError.
    """
    adopted = _id(connection, Scope(namespace, scope.task_queue))
    if adopted is None or namespace == scope.namespace:
        found = ", ".join(
            f"{each.namespace} ({each.runs:,} runs)" for each in _others(connection, scope)
        )
        raise SettingsError(
            f"--adopt: for the task queue {scope.task_queue!r} the records have no other namespace with "
            f"the id {namespace!r}, but: {found or 'none'}"
        )
    own = _id(connection, scope)
    if own is not None:
        if _has_records(connection, own):
            raise SettingsError(
                f"--adopt: the task queue {scope.task_queue!r} has records of its own by now: adopt "
                "those of a lost namespace before workers and APIs start"
            )
        connection.execute(delete(followers).where(followers.c.deployment == own))
        connection.execute(delete(deployments).where(deployments.c.id == own))
    renamed = update(deployments).where(deployments.c.id == adopted)
    connection.execute(renamed.values(namespace=scope.namespace))


def _id(connection: Connection, scope: Scope) -> int | None:
    query = select(deployments.c.id).where(
        deployments.c.namespace == scope.namespace, deployments.c.task_queue == scope.task_queue
    )
    return connection.scalar(query)


def _others(connection: Connection, scope: Scope) -> list[Other]:
    count = select(func.count()).where(runs.c.deployment == deployments.c.id).scalar_subquery()
    query = select(deployments.c.namespace, count).where(
        deployments.c.task_queue == scope.task_queue, deployments.c.namespace != scope.namespace
    )
    found = connection.execute(query.order_by(deployments.c.id))
    return [Other(namespace, runs) for namespace, runs in found]


def _has_records(connection: Connection, deployment: int) -> bool:
    # A row of a program that follows the stream does not count: without events it has read nothing.
    tables = [t for t in metadata.sorted_tables if "deployment" in t.c and t is not followers]
    return any(
        connection.scalar(select(exists().where(table.c.deployment == deployment)))
        for table in tables
    )
