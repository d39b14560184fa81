"""The command line, one module a group of commands.

Heavy libraries are imported inside the commands, so that `genmon --help` answers at once.
"""

from genmon.cli.front import genmon, main

__all__ = ["genmon", "main"]
