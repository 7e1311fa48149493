"""``python -m pipelines.query``: the command ``query``."""

from kafka_log_lake.__main__ import script

script("query")
