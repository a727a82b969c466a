"""JobSource, Ledger and History on one SQL database: SQLite on one machine, PostgreSQL on many."""
