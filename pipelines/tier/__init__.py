"""Tiered storage: the objects in a remote store, and the log that they are together with a broker's disk."""
