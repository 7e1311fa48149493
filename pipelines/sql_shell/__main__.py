"""``python -m pipelines.sql_shell``: the command ``sql``."""

from kafka_log_lake.__main__ import script

script("sql")
