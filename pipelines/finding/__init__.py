"""Finds records in log segments with the decoder, in worker processes: no Spark, no lake."""
