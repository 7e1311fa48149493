# Databricks notebook source
# MAGIC %md
# MAGIC # Checksums and quality
# MAGIC
# MAGIC What is damaged, what it cost, and where a consumer can go on.
# MAGIC
# MAGIC | widget | value outside Databricks | |
# MAGIC |---|---|---|
# MAGIC | `lake` | `lake` | folder or URI of a lake that `01_ingest_and_decode` wrote, or `catalog.schema` |
# MAGIC | `output` | | folder for the pages of the quality report; empty: a temporary one |

# COMMAND ----------

import tempfile

import matplotlib.pyplot as plt

from kafka_log_lake import register
from kafka_log_lake.pipelines.cli.notebooks import path_widget, show, widget
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.cli.values import is_catalog_lake
from kafka_log_lake.pipelines.engine.session import get_session
from kafka_log_lake.pipelines.quality_report import command as quality_report

lake = path_widget(globals(), "lake", "lake")
output = widget(globals(), "output", "") or tempfile.mkdtemp(prefix="quality-report-")
spark = get_session()
# What this notebook reads: without `views` all are registered, which takes longer
register(
    spark, lake, views=["logs", "crc_report", "published_quarantine", "lost_offsets", "timestamp_anomalies"]
)
SOUND, DAMAGED, TAIL = "#2a78b5", "#d1495b", "#edae49"

# COMMAND ----------

# MAGIC %md
# MAGIC ## Sound and damaged bytes
# MAGIC
# MAGIC Every byte of a log is in a sound batch, in quarantine or in the tail. Shown are logs with damage
# MAGIC or a tail.

# COMMAND ----------

logs = spark.sql("""
    SELECT topic, partition, bytes, damaged_bytes, tail_bytes, damaged_ranges FROM logs
    WHERE damaged_ranges > 0 OR tail_bytes > 0 ORDER BY damaged_bytes / bytes DESC, topic, partition LIMIT 20
""").collect()

shares, axes = plt.subplots(figsize=(8, 1.4 + 0.3 * len(logs)), layout="constrained")
names = [f"{row.topic}-{row.partition}" for row in logs]
left = [0.0] * len(logs)
for label, colour, sizes in (
    ("sound", SOUND, [row.bytes - row.damaged_bytes - row.tail_bytes for row in logs]),
    ("damaged", DAMAGED, [row.damaged_bytes for row in logs]),
    ("tail", TAIL, [row.tail_bytes for row in logs]),
):
    values = [100 * size / row.bytes for size, row in zip(sizes, logs, strict=True)]
    axes.barh(names, values, left=left, color=colour, label=label)
    left = [before + value for before, value in zip(left, values, strict=True)]
axes.set_title("Bytes of logs with damage or a tail")
axes.set_xlabel("% of the log's bytes")
axes.invert_yaxis()
shares.legend(ncols=3, loc="outside lower center")
show(globals(), shares)
total = spark.sql("SELECT sum(bytes) AS bytes, sum(damaged_bytes) AS damaged FROM logs").first()
print(f"{total.damaged:,} of {total.bytes:,} bytes are damaged ({100 * total.damaged / total.bytes:.2f} %).")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Checksum failures
# MAGIC
# MAGIC `crc_report` counts them by partition and magic; damage without a readable header has magic null.

# COMMAND ----------

damage = spark.sql("""
    SELECT * FROM crc_report WHERE crc_failures > 0 OR damaged_bytes > 0 ORDER BY topic, partition, magic
""")
damage.show(20, truncate=False)
failures = damage.agg({"crc_failures": "sum"}).first()[0] or 0
print(f"{failures:,} batches have a wrong checksum.")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Each damaged range

# COMMAND ----------

ranges = spark.sql("""
    SELECT topic, partition, position, size_bytes, reason, detail, hex(left(content, 16)) AS first_bytes
    FROM published_quarantine ORDER BY topic, partition, position
""")
ranges.show(20, truncate=100)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Lost offsets
# MAGIC
# MAGIC What the damage cost, and the command that moves a stopped consumer group past it.

# COMMAND ----------

lost = spark.sql("""
    SELECT topic, partition, first_lost, last_lost, max_records, cause, is_certain, next_offset, reset_command
    FROM lost_offsets ORDER BY max_records DESC NULLS FIRST, topic, partition
""")
lost.show(20, truncate=False)
known = lost.agg({"max_records": "sum"}).first()[0] or 0
print(f"At most {known:,} records are lost between sound batches, in {lost.count():,} places.")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Timestamps
# MAGIC
# MAGIC Out of order, in the future, in a wrong unit: what they keep on disk is in `blocked_bytes`.

# COMMAND ----------

timestamps = spark.sql("""
    SELECT topic, partition, anomaly, timestampType, records, lowest_ms, highest_ms, blocked_bytes
    FROM timestamp_anomalies WHERE anomaly <> 'none' ORDER BY records DESC, topic, anomaly
""")
timestamps.show(20, truncate=False)

# COMMAND ----------

# MAGIC %md
# MAGIC ## The quality report
# MAGIC
# MAGIC Every check with its threshold, as one HTML page, and as rows of the table `quality_metrics` that a
# MAGIC scheduler can alert on. It reads files by their paths, which a catalog gives nobody: a lake in a
# MAGIC schema has the views above, and no page.

# COMMAND ----------

if not is_catalog_lake(lake):
    summary = quality_report.run(Settings(lake=lake), output=output)
    register(spark, lake, views="quality_metrics")
    failed = spark.sql(f"""
        SELECT check, severity, count(*) AS places, max(value) AS highest, max(threshold) AS threshold
        FROM quality_metrics WHERE run_id = '{summary.report.run_id}' AND NOT passed AND segment IS NULL
        GROUP BY check, severity ORDER BY severity, places DESC, check
    """)
    failed.show(30, truncate=False)

    checks, axes = plt.subplots(figsize=(8, 1.4 + 0.3 * failed.count()), layout="constrained")
    rows = failed.collect()
    colours = [DAMAGED if row.severity == "error" else TAIL for row in rows]
    axes.barh([row.check.replace("_", " ") for row in rows], [row.places for row in rows], color=colours)
    axes.set_title("Failed checks, by the partitions or topics in which they failed")
    axes.set_xlabel("partitions or topics (errors red, warnings yellow)")
    axes.invert_yaxis()
    show(globals(), checks)
    print(f"The page is {summary.page}")
