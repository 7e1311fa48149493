"""Adapts decoding to Spark: the only room of ``udfs`` that imports it."""
