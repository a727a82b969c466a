"""Facts and records that rooms share."""
