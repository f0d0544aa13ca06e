"""The workflows. `run` carries out the decisions of the core; start reading there."""
