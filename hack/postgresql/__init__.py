"""A private PostgreSQL for tests and trials: on loopback, in a folder that goes when it ends."""
