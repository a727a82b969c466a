"""Dynamic Resource Allocation (`resource.k8s.io/v1`): which devices a pod's claims get, and the writes that say so."""
