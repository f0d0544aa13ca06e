"""Temporal itself: the connection, retries, a limit for updates, schedules, the workflow runner.

The client, the history room and the worker import it. Start reading at `connection`.
"""
