"""Delivery of notifications by webhooks and by apprise, which reaches mail and chats.

`sending` is the notifier, which the entry point `people` names; `webhook` signs and posts.
"""
