"""Who callers are, and what they may."""
