"""Reservations and earliest starts: what is kept for waiting gangs, and which jobs may start around it."""
