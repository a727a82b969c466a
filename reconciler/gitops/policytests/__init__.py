"""Policy tests: given a cluster and jobs, over time if wanted, this policy must do that."""
