"""What objects of the API server mean here: nodes, gangs and their wishes. Pure: no I/O, no clock."""
