"""Runs from outside: started, listed, read, asked about, and controlled, over Temporal."""
