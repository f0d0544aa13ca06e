"""The first tables: no migration makes them (`abeyance.records.schema`), and later ones begin here."""

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Change nothing."""
