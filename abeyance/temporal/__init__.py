"""Temporal itself: the connection, the data converter, retries, a limit for updates, schedules.

`workarounds` has what faults of the SDK make necessary. The client, the history room and the worker
import this. Start reading at `connection`.
"""
