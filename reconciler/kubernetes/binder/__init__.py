"""What is done to pods: bindings, evictions, promises, and what is written on pods about them."""
