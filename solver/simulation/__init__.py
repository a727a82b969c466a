"""Rounds over a trace, and the rounds to come after a live snapshot."""
