"""Agents: model turns, tools and their gate, hooks, approvals, transcripts.

An agent compiles to a nested graph (`compiler`), so each turn and each tool call is a visit. The shells,
YAML and programs may import this room; it imports the core, storage and schemas, and shares its layer
with `authoring`. Start reading at `agent`, then `turn` (one model turn) and `tool_gate` (may a
call run?).
"""
