"""Run migrations on the connection of `abeyance.records.schema`, in its transaction."""

from alembic import context

from abeyance.records.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    # SQLite cannot change a column: the table is made anew.
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
