"""The container image of a release."""
