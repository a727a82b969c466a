"""Implementations of the backend protocol. They do not know each other."""
