"""Runs read from Temporal's histories and memos, without a worker, and the event feed made of them.

The client and the API import it. Start reading at `reader` (pages of a history), `event_translation`
and `entries` (what an event of Temporal says about a run), and `feed` (one shared reader for many
viewers).
"""
