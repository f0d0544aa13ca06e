"""Random values, addresses and graphs."""

from __future__ import annotations

from hypothesis import strategies as st

from abeyance.core.address import Address, Segment
from abeyance.core.canonical import Json

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def json_values() -> st.SearchStrategy[Json]:
    """Any JSON value."""
    plain = (
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | _TEXT
    )
    return st.recursive(
        plain,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
        max_leaves=8,
    )


def addresses() -> st.SearchStrategy[Address]:
    """Any address, of ids with every sign in them."""
    ids = st.text(st.sampled_from("ab:;%3AB25 é"), min_size=1, max_size=6)
    segments = st.builds(Segment, ids, ids, st.none() | ids)
    return st.builds(Address, st.lists(segments, min_size=1, max_size=4).map(tuple))
