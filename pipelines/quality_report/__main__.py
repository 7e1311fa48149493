"""``python -m pipelines.quality_report``: the command ``quality-report``."""

from kafka_log_lake.__main__ import script

script("quality-report")
