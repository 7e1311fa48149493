"""``python -m pipelines.mcp_server``: the command ``mcp``."""

from kafka_log_lake.__main__ import script

script("mcp")
