from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from receiver import SECRET, SECRET_ENV, Receiver, receiver


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRET_ENV, SECRET)


@pytest.fixture
async def hooked() -> AsyncIterator[Receiver]:
    """A receiver that takes everything."""
    async with receiver() as made:
        yield made
