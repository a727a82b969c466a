"""Callers, and what they may do: identities, roles by team and queue, and the rules that follow from them."""
