"""Registers the views of a lake, and the functions for SQL, in a session or in a catalog."""
