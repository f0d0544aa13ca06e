"""The Temporal shell: one workflow type, which carries out what the core decides."""
