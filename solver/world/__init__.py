"""What is: the cluster, the workload and what is in flight, as frozen data."""
