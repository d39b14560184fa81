"""Prompts in, completions out: everything on disk that belongs to the job."""
