"""The declarations of authors: graphs, nodes, `Context`, interrupts, rules; and their compilation to a
spec.

`graph.Graph` collects declarations, `validation` finds the faults, `compiler` makes the spec that a run
is pinned to. Everything above may import this room; it imports the core and schemas, and shares its layer
with `agents` and `mcp`. Start reading at `graph`, then `context`.
"""
