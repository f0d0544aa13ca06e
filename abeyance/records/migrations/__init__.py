"""Alembic's migrations of the records, from one release to the next.

A database without tables gets those of `abeyance.records.tables`, so a migration is for databases that
are older. It takes a new file in `versions`, and its number in `abeyance.records.schema.REVISIONS`.
"""
