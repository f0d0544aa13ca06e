"""The flags of Temporal's development server."""

from __future__ import annotations

from pathlib import Path

import pytest

from abeyance.dev import server
from abeyance.names import SEARCH_ATTRIBUTES

LOOKS_UP_AT_EACH_USE = "system.forceSearchAttributesCacheRefreshOnRead=false"


def flags(database: Path | None) -> list[str]:
    ports = server.Ports(grpc=1, http=2, metrics=3)
    return server.command("temporal", ports=ports, database=database)


@pytest.mark.parametrize("is_in_memory", [True, False])
def test_a_new_server_knows_its_search_attributes_from_the_start(
    tmp_path: Path, is_in_memory: bool
) -> None:
    assert LOOKS_UP_AT_EACH_USE in flags(None if is_in_memory else tmp_path / "temporal.db")


def test_a_server_on_an_older_database_looks_up_search_attributes(
    tmp_path: Path,
) -> None:
    database = tmp_path / "temporal.db"
    database.touch()
    assert LOOKS_UP_AT_EACH_USE not in flags(database)

    note = tmp_path / "temporal.db.attributes"
    note.write_text("AbeyanceEarlier", encoding="utf-8")
    assert LOOKS_UP_AT_EACH_USE not in flags(database)

    note.write_text(" ".join(sorted(SEARCH_ATTRIBUTES)), encoding="utf-8")
    assert LOOKS_UP_AT_EACH_USE in flags(database)
