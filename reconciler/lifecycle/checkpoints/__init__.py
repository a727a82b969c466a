"""Checkpoints: what tasks have handed in becomes whole, is verified, is kept as long as policy says, and is gone on from."""
