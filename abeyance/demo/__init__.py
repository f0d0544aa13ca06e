"""The demo: an act with a payment, and one with an agent."""
