"""Touches the world: Git, stores, backends, the loop, the API and the command line."""
