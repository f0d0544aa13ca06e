"""The commands of `abeyance`, and what they are made of."""
