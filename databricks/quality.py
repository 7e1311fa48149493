"""Fails where a schema that ``--sink catalog`` wrote holds damage: the last task of a job on Databricks.

Takes the schema: ``python quality.py main.kafka``.
"""

from __future__ import annotations

import sys

from kafka_log_lake import get_session

schema = sys.argv[1]
damaged = get_session().sql(f"""
    SELECT topic, partition, magic, crc_failures, damaged_bytes
    FROM {schema}.crc_report WHERE crc_failures > 0 OR damaged_bytes > 0 ORDER BY ALL
""")
damaged.show(truncate=False)
if not damaged.isEmpty():
    sys.exit("there is damage, see the table above and the table quarantine")
