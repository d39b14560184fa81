"""genmon: run, watch and mend multi-day completion jobs on your own GPUs."""

__version__ = "0.1.0"
