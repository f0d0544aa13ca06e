"""Servers of MCP as an agent's tools: connections, tools, and elicitation as interrupts.

Start reading at `server` (the declaration), then `toolset`, `tool_call` and `elicitation`.
"""
