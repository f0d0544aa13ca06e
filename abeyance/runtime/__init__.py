"""Nodes: what their code may do, ask and return, and the rules that are evaluated after it."""
