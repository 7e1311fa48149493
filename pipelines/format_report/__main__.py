"""Runs the command ``format-report`` as ``python -m pipelines.format_report``."""

from kafka_log_lake.__main__ import script

script("format-report")
