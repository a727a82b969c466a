"""What must survive a restart: jobs, claims on devices, intents, rounds and events."""
