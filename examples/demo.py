"""What `abeyance demo` serves: the payment run, and the agent that tidies a folder."""

from __future__ import annotations

from typing import Final

from abeyance import Graph
from examples.agents import deleting_files
from examples.invoices.graph import graph as invoices

graphs: Final[list[Graph]] = [invoices, deleting_files.graph]
