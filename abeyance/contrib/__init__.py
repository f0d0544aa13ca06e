"""Rooms for services of others. Nothing outside imports them, but for the command line when asked to."""
