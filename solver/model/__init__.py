"""Frozen facts: quantities, cluster, workload, topology, MIG geometries, what is in flight, and the snapshot that joins them."""
