"""Whole rounds on large seeded clusters, for `python -m hack.bench_round`."""
