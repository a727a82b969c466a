"""Where the tasks of a gang go: nodes within topology, devices within nodes, and what fits best."""
