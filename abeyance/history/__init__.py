"""What only Temporal has of a run: its description, its closing record, and what its models say."""
