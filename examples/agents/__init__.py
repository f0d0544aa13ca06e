"""Ten ways in which an agent and a person work together; README.md has the list."""
