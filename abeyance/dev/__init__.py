"""The local stack: Temporal, a worker and the API as processes that end together.

The command line and the worker import it. Start reading at `stack`; `supervisor` keeps the processes,
and `parent_death` ends what a killed stack would leave behind.
"""
