"""The simulated box: servers that speak the real protocol, and a GPU with measured physics."""
