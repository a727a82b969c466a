"""The control plane as one process: the loop, the policy's follower and the API, wired together and stopped together."""
