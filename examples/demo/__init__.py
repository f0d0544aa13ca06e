"""What the demo serves: the payment run, two agents that ask, and a payout by two."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from abeyance import Graph
from examples.invoices.graph import graph as invoices
from examples.payout import graph as payout

graphs: Final[list[Graph]] = [invoices, payout]

if find_spec("pydantic_ai") is not None:
    from examples.agents import deleting_files
    from examples.support_desk import desk

    graphs.extend((deleting_files.graph, desk.graph))
