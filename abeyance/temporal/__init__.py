"""Reaching Temporal: a connection, repeated calls, a namespace that is ready, schedules."""
