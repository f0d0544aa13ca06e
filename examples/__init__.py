"""Graphs that show what Abeyance is for, each with the files that it works on."""
