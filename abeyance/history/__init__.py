"""What only Temporal has of a run, read without a worker: its description, its closing record, the
transcripts of its agents, and what its models say.
"""
