"""Compares and heals copies of partitions: gives one log, the losses, and the state of the cluster."""
