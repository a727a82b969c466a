"""Kubernetes as what runs tasks."""
