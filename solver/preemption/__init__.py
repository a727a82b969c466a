"""Which running jobs leave or move so that others start: candidates, their order, and the selection."""
