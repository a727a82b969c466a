"""What becomes of a job: its states, retries, checkpoints, the health of its nodes, and what people do by hand."""
