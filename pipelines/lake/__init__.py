"""The tables of a lake: their address, their creation, and the commits of runs."""
