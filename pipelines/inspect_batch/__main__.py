"""``python -m pipelines.inspect_batch``: the command ``inspect``."""

from kafka_log_lake.__main__ import script

script("inspect")
