"""Whether nodes and their GPUs are well, concluded from what is known of them: pure."""
