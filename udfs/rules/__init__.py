"""Kafka's rules over arrays of batches, for jobs and scans. ``pipelines/rules`` has the same rules in SQL."""
