"""Runs read from Temporal's histories and memos, without a worker, and the event feed made of them."""
