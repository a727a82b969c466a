"""Jobs that are pods: the API server's client, objects, bindings, devices, what is said there, and its side of the pass."""
