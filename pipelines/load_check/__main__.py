"""Runs the command ``load-check`` as ``python -m pipelines.load_check``."""

from kafka_log_lake.__main__ import script

script("load-check")
