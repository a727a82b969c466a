"""The only rooms that know NVML, NVIDIA's management library: Driver, implemented by calls of it."""
