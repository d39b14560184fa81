"""The run log: one DuckDB file of all runs, written in short bursts from a spool, and the questions asked of it."""
