"""Servers of the Model Context Protocol: connections, their tools, and what they ask people."""
