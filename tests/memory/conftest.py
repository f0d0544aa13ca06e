from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _in_both_ways(both_ways: str) -> None:
    """Run every test with nodes in activities of their own, and with fused nodes."""
