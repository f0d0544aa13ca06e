"""Notifications: the file of rules, who is notified of what, how, and the links in it.

`moments` is what a run knows of it, `config` the file, `matching` who is notified, `sending` what they
read and how it reaches them, and `links` leads them to the question. Workflows and activities use
it; it knows no Temporal. Start reading in `moments`.
"""
