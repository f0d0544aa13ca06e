from __future__ import annotations

import pytest
from sealed_site import a_key


@pytest.fixture
def keys() -> str:
    """A setting with one key, which nobody else has."""
    return a_key("first")
