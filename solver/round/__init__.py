"""One round from beginning to end: a frozen snapshot and a frozen policy in, a plan out."""
