"""Typed tables for those who read them: the schema registry that lies in a lake, and its tables by name."""
