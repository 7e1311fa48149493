"""``python -m pipelines.export``: the command ``export``."""

from kafka_log_lake.__main__ import script

script("export")
