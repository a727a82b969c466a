"""A whole control plane under load: a full cluster, `quorate run` over the simulated backend, and what drives both."""
