"""``python -m pipelines.format_report``: the command ``format-report``."""

from kafka_log_lake.__main__ import script

script("format-report")
