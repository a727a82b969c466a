"""The REST API and the metrics page."""
