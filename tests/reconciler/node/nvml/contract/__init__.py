"""What every Driver does, the made-up ones and that of this machine."""
