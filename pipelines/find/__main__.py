"""``python -m pipelines.find``: the command ``find``."""

from kafka_log_lake.__main__ import script

script("find")
