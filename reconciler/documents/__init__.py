"""Documents in Git: read under guard, checked against the schemas, compiled into a policy."""
