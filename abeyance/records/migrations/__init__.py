"""Alembic's migrations of the records.

A change of `abeyance.records.tables` takes a new file in `versions`, and its number in
`abeyance.records.schema.REVISIONS`; a test compares the tables that both make. While nothing is released,
the first file is changed instead.
"""
