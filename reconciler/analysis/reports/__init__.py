"""Reports: what was found, as text for people, repository hosts and CI systems. Pure functions from data to text."""
