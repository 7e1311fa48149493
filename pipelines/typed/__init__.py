"""Reads what typed tables need: the schemas in a lake, and its typed tables by name."""
