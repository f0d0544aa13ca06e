"""Delivery of notifications by webhooks and by apprise, which reaches mail and chats.

`sending` is the notifier, as the product finds it by the entry point `people`; `webhook` signs and posts.
"""
