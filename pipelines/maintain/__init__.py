"""Keeps the tables of a lake small and fast to read."""
