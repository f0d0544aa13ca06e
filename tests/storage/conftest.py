from __future__ import annotations

import base64
import os

import pytest


@pytest.fixture
def keys() -> str:
    """A setting with one key, which nobody else has."""
    return f"first:{base64.b64encode(os.urandom(32)).decode()}"
