"""Executes a plan: sends slices to the workers, judges their reports, commits the results."""
