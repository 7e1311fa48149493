"""``python -m pipelines.recover``: the command ``recover``."""

from kafka_log_lake.__main__ import script

script("recover")
