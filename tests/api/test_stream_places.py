"""How many streams one process keeps open."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from abeyance import Refusal
from abeyance.api.dependencies import StreamPlaces
from abeyance.errors import Code


def test_all_principals_have_at_most_five_hundred_streams() -> None:
    places = StreamPlaces()
    with ExitStack() as others, ExitStack() as own:
        for number in range(499):
            others.enter_context(places.one_of(f"reader {number // 20}"))
        own.enter_context(places.one_of("ada"))
        with pytest.raises(Refusal) as refused, places.one_of("bob"):
            pass
        own.close()
        with places.one_of("bob"):
            pass

    assert (refused.value.code, refused.value.details["limit"]) == (Code.TOO_MANY_RUNS, 500)
