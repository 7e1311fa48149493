"""``python -m pipelines.decode_values``: the command ``decode-values``."""

from kafka_log_lake.__main__ import script

script("decode-values")
