"""Agents of other frameworks as nodes: one module for each framework, and the names that they share.

Import the module of your framework, such as `abeyance.adapters.openai_agents`; this package imports none.
An adapter of your own is an object with the methods of `Framework`. Programs may import this package; it
imports `agents`. Start reading at `abeyance.agents.foreign`, then `pydantic_ai`, the smallest module.
"""

from abeyance.agents.foreign import (
    CallResult,
    ForeignAgent,
    ForeignCall,
    ForeignContext,
    ForeignTool,
    ForeignTurn,
    Framework,
    NeedsApproval,
    ToolRules,
    TurnTaken,
)

__all__ = [
    "CallResult",
    "ForeignAgent",
    "ForeignCall",
    "ForeignContext",
    "ForeignTool",
    "ForeignTurn",
    "Framework",
    "NeedsApproval",
    "ToolRules",
    "TurnTaken",
]
