"""The headless view of a run: `genmon --batch`."""
