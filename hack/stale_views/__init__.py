"""A control plane that sees an old view of its cluster: one that lags, goes back in time after a failover, or misses things."""
