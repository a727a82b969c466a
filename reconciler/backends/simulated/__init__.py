"""A cluster that exists in memory only: seeded, and asynchronous, partial and stale on purpose, as real ones are."""
