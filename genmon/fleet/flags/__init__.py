"""Launch flags as data: what a run composes, what a version takes, what a model can, and what a change changes."""
