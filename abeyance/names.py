"""Names in Temporal: workflow and activity types, search attributes, memo keys, types of errors.

A later version must read these names as an earlier version wrote them, so they are all here.
"""

from __future__ import annotations

READ_GRAPH_ACTIVITY = "read-graph"
WRITE_ANSWERS_ACTIVITY = "write-answers"
READ_JOURNALS_ACTIVITY = "read-journals"
READ_REWIND_ACTIVITY = "read-rewind"
RECORD_ACTIVITY = "record"
NOTIFICATION_WORKFLOW = "Notification"
"""The only workflow type beside those of runs, which are the names of their graphs."""
START_ORDER = "start"
"""The name in the stamp of a start; the stamp of a signal has the signal's name."""
MOST_IN_A_TASK = 1_000
"""The most signals of a kind that a run takes in one workflow task: more than clients leave pending, and
few enough for the task to end in time. Temporal holds 10,000 for a run.
"""
ANNOUNCE_ACTIVITY = "announce"
RECEIVERS_ACTIVITY = "find-receivers"
DELIVER_ACTIVITY = "deliver"
REPORT_ACTIVITY = "report-undelivered"

STATUS = "AbeyanceStatus"
"""The status of a run. Only runs have this search attribute, not other workflows."""
GRAPH = "AbeyanceGraph"
"""The name of the graph of a run, for lists in Temporal's UI. It never changes."""
SEARCH_ATTRIBUTES = (STATUS, GRAPH)
"""The search attributes that have to be registered, as keywords."""
REPORTED_PROBLEMS = "TemporalReportedProblems"
"""Temporal's own search attribute: set while a workflow task fails again, from the fifth failure on."""

MEMO_START = "start"
MEMO_UNREAD = "unread"
MEMO_UNRECORDED = "unrecorded"
MEMO_MOMENT = "moment"
MEMO_UNDELIVERED = "undelivered"
"""Keys of the memo of a run. The last two are keys of the memo of a notification: its moment, and the
receivers that it did not reach."""

DEFLATED = "json/deflate"
"""The encoding of deflated JSON, for JSON that is too large as plain text."""

REPLAYED = "replayed"
"""The type of the error with which a validator returns the receipt of a repeated call: a rejected update
leaves nothing in the history."""

REJECTED = "rejected"
"""A detail of the error with which a validator refuses an update."""

EMPTY = "queue_empty"
"""The type of the error with which `take_messages` is rejected if there is nothing to take."""

NO_GRAPH = "no_graph"
"""The type of the error of a worker that is asked for a graph that it does not have."""

STILL_ACTIVE = "still_active"
"""The type of the error with which a run rejects `evict`."""

SEEDS = "abeyance_seeds"
"""The function with which a run reads the random seeds that Temporal gave it at resets."""

BLOCKED_LINE = "the visit is blocked"
"""Part of the line that a worker logs for each reason, and that `abeyance dev` repeats."""
