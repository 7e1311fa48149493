"""Scans a log directory: what is in it, what is damaged or missing, and what that costs."""
