"""Nodes that jobs wait for, asked of an autoscaler: requests as objects, what follows of them in rounds, and the writes."""
