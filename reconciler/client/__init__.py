"""The client of the API, for commands and for other programs."""
