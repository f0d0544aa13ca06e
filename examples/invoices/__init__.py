"""A payment run over a folder of supplier invoices, in which a person approves what looks odd."""
