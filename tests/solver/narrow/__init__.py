"""Rounds of few jobs alone."""
