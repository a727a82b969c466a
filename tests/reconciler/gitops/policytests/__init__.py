"""Policy tests: what they say, how they are read, and that those of the example organisation hold."""
