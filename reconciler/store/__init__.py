"""The protocols of storage, in SQL: SQLite and PostgreSQL."""
