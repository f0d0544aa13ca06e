"""Names in Temporal: workflow and activity types, search attributes, memo keys, types of errors.

They are what a later version must read as an earlier one wrote it, so they are all here.
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
"""How many signals of a kind a run takes in one workflow task: more than clients leave pending there, and
so few that the task is done in time. Temporal holds 10,000 for a run.
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
"""Temporal's own: it stands while a workflow's task fails, from the fifth time on."""

MEMO_START = "start"
MEMO_UNREAD = "unread"
MEMO_UNRECORDED = "unrecorded"
MEMO_QUEUE = "task_queue"
MEMO_MOMENT = "moment"
MEMO_UNDELIVERED = "undelivered"
"""Keys of a run's memo. After those come those of a notification's: what it is about, and whom it did not
reach."""

DEFLATED = "json/deflate"
"""The encoding of JSON that is handed over in fewer bytes, because it is too large as it is."""

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
"""The function by which a run reads what seeds Temporal has given it by resets."""

BLOCKED_LINE = "the visit is blocked"
"""Part of the line that a worker logs for each reason, and that `abeyance dev` repeats."""
