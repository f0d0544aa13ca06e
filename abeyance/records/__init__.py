"""The records: what people read about runs, in a database.

Temporal decides and runs. Each run hands its changes to one local activity, which writes them here;
lists, inboxes, views, feeds and audits are queries. The database can be lost: `abeyance reindex` makes it
anew from the histories that Temporal keeps.
"""
