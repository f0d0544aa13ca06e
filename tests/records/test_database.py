from __future__ import annotations

from abeyance.records.database import Database, Scope


def test_a_deployment_keeps_its_number(database: Database) -> None:
    with database.writing() as connection:
        first = database.deployment(connection, Scope("n", "one"))
        second = database.deployment(connection, Scope("n", "two"))
    with database.reading() as connection:
        assert database.deployment(connection, Scope("n", "one")) == first != second
        assert database.deployment(connection, Scope("n", "none")) == 0
