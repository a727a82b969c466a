"""What policy means: queues, classes, entitlement and order."""
