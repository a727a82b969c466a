"""What people do by hand when Git would be too slow: cordon, hold, boost. Each has an author, a reason and an end."""
