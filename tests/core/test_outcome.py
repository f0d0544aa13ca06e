"""What code of a visit came to."""

from __future__ import annotations

from dataclasses import replace

from abeyance.core.outcome import Finished, Send


def test_what_code_chose_may_get_other_names() -> None:
    chosen = Finished(goto="a", route_targets=("a", "b"), sends=(Send(node="b", item="c"),))
    assert chosen.renamed(str.upper) == replace(
        chosen, goto="A", route_targets=("A", "B"), sends=(Send(node="B", item="c"),)
    )
    assert Finished().renamed(str.upper) == Finished()
