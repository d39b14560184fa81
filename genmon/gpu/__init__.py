"""NVML: what the GPUs say."""
