"""The independent judge of every plan: it counts by its own arithmetic."""
