"""Records: what people read of runs, in a database.

Temporal decides and runs. Each run hands what has changed to one local activity, which writes it here;
lists, inboxes, views, feeds and audits are queries. The database can be lost: `abeyance reindex` makes it
anew from the histories that Temporal keeps.
"""
