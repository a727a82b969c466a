"""Links of the audit chain, with their records ▸ what was forged, changed, reordered, removed or cut off, and where."""
