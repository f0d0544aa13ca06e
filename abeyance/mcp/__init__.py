"""Servers of the Model Context Protocol: connections, their tools, and elicitation as interrupts.

It shares its layer with `authoring` and `agents`. Start reading at `server` (the declaration), then
`tool_call` and `elicitation`.
"""
