"""The story that `make demo` tells: one commit followed from Git to running processes and back."""
