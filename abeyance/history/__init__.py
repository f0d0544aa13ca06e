"""The parts of a run that only Temporal has: its description, its history, and the live text of its
models.
"""
