"""The GPUs of NVIDIA in this machine: what they are, how they are, and how they are partitioned."""
