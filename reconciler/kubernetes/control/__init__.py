"""The pass of a cluster whose jobs are pods."""
