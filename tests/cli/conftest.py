"""One stack for all tests that only use it, or kill a part that it restarts by itself."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import Terminal
from dev_stack import Place, Stack


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture(scope="session")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Place(tmp_path_factory.mktemp("standing")).stack() as stack:
        yield stack


@pytest.fixture
def terminal(
    standing: Stack, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Terminal:
    return Terminal(standing.api, capsys, monkeypatch)
