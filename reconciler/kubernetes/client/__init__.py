"""A client of the API server: credentials, requests, watches, and the election of a leader."""
