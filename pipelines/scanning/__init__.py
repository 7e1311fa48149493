"""Scans a log directory with the decoder in worker processes: no Spark, no lake."""
