"""Kafka's rules about a log, over arrays of its batches: order, gaps, transactions, log start, time."""
