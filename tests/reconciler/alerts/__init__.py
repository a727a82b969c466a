"""Alerts: what is sent, to whom, and every way in which a receiver can misbehave."""
