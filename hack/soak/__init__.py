"""Simulated months of one cluster in minutes: the real pass and store, with all that befalls a cluster, judged at every step."""
