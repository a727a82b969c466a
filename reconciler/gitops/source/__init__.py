"""Policy from Git: fetched into a bare mirror, read from the object database, and kept at the last good revision."""
