"""Runs the command ``decode-values`` as ``python -m pipelines.decode_values``."""

from kafka_log_lake.__main__ import script

script("decode-values")
