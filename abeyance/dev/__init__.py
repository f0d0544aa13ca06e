"""What the programs of one machine need: ports, a server of their own, and to be ended together."""
