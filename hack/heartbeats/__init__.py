"""Many agents that say that they are there, for `python -m hack.bench_heartbeats`."""
