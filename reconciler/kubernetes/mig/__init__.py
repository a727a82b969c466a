"""GPUs of device-plugin nodes partitioned anew, by the label that the GPU operator's MIG manager follows."""
