"""What only Temporal has of a run: its description, its history, and what its models say."""
