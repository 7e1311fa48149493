"""``python -m pipelines.scan``: the command ``scan``."""

from kafka_log_lake.__main__ import script

script("scan")
