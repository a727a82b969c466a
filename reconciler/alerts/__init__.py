"""Alerts: what happens to jobs and policy is told to webhooks, each at least once and in order."""
