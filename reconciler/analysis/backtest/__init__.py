"""Back-tests: jobs of the past under other policies, what came of it, and the report."""
