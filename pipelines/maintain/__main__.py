"""``python -m pipelines.maintain``: the command ``maintain``."""

from kafka_log_lake.__main__ import script

script("maintain")
