"""What is said to Kubernetes: a client of its API server, and watches."""
