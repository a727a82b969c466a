"""`kubectl quorate`: what Quorate says inside a cluster, read with the user's own rights."""
