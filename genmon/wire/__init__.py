"""Engine and views apart: states out, commands in, over a Unix socket."""
