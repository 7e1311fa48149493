"""``python -m pipelines.dump_log``: the command ``dump``."""

from kafka_log_lake.__main__ import script

script("dump")
