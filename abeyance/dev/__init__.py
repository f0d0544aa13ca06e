"""The local stack: Temporal, a worker and the API as one group of processes that end together.

The command line and the worker import it. Start reading at `stack`; `supervisor` keeps the processes,
`parent_death` and `watchdog` end what would be left behind.
"""
