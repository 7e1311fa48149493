"""Scans a log directory: reports what it holds, what is damaged or missing, and what that costs."""
