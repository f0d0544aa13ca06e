"""Notifications: the file of rules, who is notified of what, and the links in it.

`moments` is the part that a run knows, `config` the file, `matching` finds the receivers, `notifier`
delivers, and `links` leads people to the question. Workflows and activities use it; it does not know
Temporal. Start reading in `moments`.
"""
