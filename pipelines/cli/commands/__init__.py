"""Lists every command once, in the groups of the help. Each is declared in a module with its name.

``python -m pipelines.<module>`` and ``kafka-log-lake <name>`` are one program, which ``options`` parses for.
"""

from __future__ import annotations

from kafka_log_lake.pipelines.cli.commands.decode import DECODE
from kafka_log_lake.pipelines.cli.commands.decode_values import DECODE_VALUES
from kafka_log_lake.pipelines.cli.commands.dump import DUMP
from kafka_log_lake.pipelines.cli.commands.export import EXPORT
from kafka_log_lake.pipelines.cli.commands.find import FIND
from kafka_log_lake.pipelines.cli.commands.format_report import FORMAT_REPORT
from kafka_log_lake.pipelines.cli.commands.ingest import INGEST
from kafka_log_lake.pipelines.cli.commands.inspect import INSPECT
from kafka_log_lake.pipelines.cli.commands.load_check import LOAD_CHECK
from kafka_log_lake.pipelines.cli.commands.maintain import MAINTAIN
from kafka_log_lake.pipelines.cli.commands.mcp import MCP
from kafka_log_lake.pipelines.cli.commands.quality_report import QUALITY_REPORT
from kafka_log_lake.pipelines.cli.commands.query import QUERY
from kafka_log_lake.pipelines.cli.commands.recover import RECOVER
from kafka_log_lake.pipelines.cli.commands.restore import RESTORE
from kafka_log_lake.pipelines.cli.commands.scan import SCAN
from kafka_log_lake.pipelines.cli.commands.sql import SQL

# As the help of the program shows them
GROUPS = {
    "look into log files": (SCAN, FIND, INSPECT, DUMP, LOAD_CHECK),
    "load them into a lake": (DECODE, DECODE_VALUES, INGEST),
    "ask the lake": (QUERY, SQL, EXPORT, QUALITY_REPORT, FORMAT_REPORT, MCP),
    "repair": (RECOVER, RESTORE),
    "keep": (MAINTAIN,),
}
COMMANDS = tuple(command for group in GROUPS.values() for command in group)
