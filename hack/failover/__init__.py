"""Control planes on one PostgreSQL that are killed and held up under load, and what became of their jobs."""
