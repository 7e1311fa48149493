"""Copies of partitions are compared and healed: one log, the loss bill, and the state of the cluster."""
