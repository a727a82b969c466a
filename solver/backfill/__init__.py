"""Reservations and earliest starts: what is kept for waiting gangs, and who may start around it."""
