"""Runs the command ``quality-report`` as ``python -m pipelines.quality_report``."""

from kafka_log_lake.__main__ import script

script("quality-report")
