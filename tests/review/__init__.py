"""What a change of policy would do, as data."""
