"""Temporal itself: the connection, the data converter, retries and a limit for updates.

`workarounds` has what faults of the SDK make necessary. The client, the history room and the worker
import this. Start reading at `connection`.
"""
