"""The compiled policy: every document of one revision as frozen, sorted data, and the quota tree indexed."""
