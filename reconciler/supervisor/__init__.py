"""What stands beside a running task and outlives the control plane: it imports nothing but the standard library."""
