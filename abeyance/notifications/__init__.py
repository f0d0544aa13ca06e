"""Notifications: the file of rules, who is notified of what, and the links in it.

`moments` is what a run knows of it, `config` the file, `matching` who is notified, `notifier` who brings
it to them, and `links` leads them to the question. Workflows and activities use it; it knows no Temporal.
Start reading in `moments`.
"""
