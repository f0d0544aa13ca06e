from __future__ import annotations

import pytest
from sealed_site import a_key


@pytest.fixture
def keys() -> str:
    """Return a setting with one key, which no other test has."""
    return a_key("first")
