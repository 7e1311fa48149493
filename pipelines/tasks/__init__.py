"""Slices of segments as tasks of workers: how they are sent and read, and whether they fit together."""
