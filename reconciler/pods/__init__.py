"""The control plane of a cluster whose jobs are pods: the API server says what wants to run and who holds what."""
