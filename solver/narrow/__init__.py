"""Rounds that decide of few jobs alone, on what the last complete round left."""
