"""What a tenant feels of another that asks for too much."""
