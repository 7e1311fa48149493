"""``python -m pipelines.restore``: the command ``restore``."""

from kafka_log_lake.__main__ import script

script("restore")
