"""What is free: by node, domain, device, MIG instance and fraction, with CPU and memory; a round fills it up while it decides."""
