"""Real Kubernetes components for the tests: found or built, started on loopback, and stopped for sure."""
