"""The Grafana dashboard that deploy/observability ships: what it shows, and how it becomes JSON."""
