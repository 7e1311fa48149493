# Databricks notebook source
# MAGIC %md
# MAGIC # Explore records and damage
# MAGIC
# MAGIC Explores a lake that `01_ingest_and_decode` or `pipelines.decode_batches` wrote, with SQL.
# MAGIC
# MAGIC | widget | value outside Databricks | |
# MAGIC |---|---|---|
# MAGIC | `lake` | `lake` | folder or URI of the lake |
# MAGIC | `plot` | `records.png` | file for the plot; empty: only shown |

# COMMAND ----------

import sys
from pathlib import Path

if "__file__" in globals():  # not on Databricks, which puts the root of the repository on sys.path
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import matplotlib.pyplot as plt

from pipelines import register
from pipelines.command.session import get_session


def widget(name: str, default: str) -> str:
    """The value of a widget; the default outside Databricks."""
    if "dbutils" not in globals():
        return default
    dbutils.widgets.text(name, default)
    return str(dbutils.widgets.get(name))


lake = widget("lake", "lake")
plot = widget("plot", "records.png")
spark = get_session()
register(spark, lake)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Records by topic
# MAGIC
# MAGIC `records` has every record of the logs, including control records; `committed_records` has the records
# MAGIC that a consumer with `isolation.level=read_committed` reads.

# COMMAND ----------

topics = spark.sql("""
    SELECT r.topic, count(*) AS records, count_if(r.is_control) AS markers, count(c.offset) AS committed,
      min(r.timestamp) AS first, max(r.timestamp) AS last
    FROM records r LEFT JOIN committed_records c USING (segment, offset)
    GROUP BY r.topic ORDER BY records DESC, r.topic
""")
topics.show(20, truncate=False)

# COMMAND ----------

# MAGIC %md
# MAGIC ## The latest value of every key

# COMMAND ----------

latest = spark.sql("""
    SELECT topic, partition, offset, CAST(key AS STRING) AS key, left(CAST(value AS STRING), 40) AS value
    FROM latest_by_key ORDER BY topic, partition, offset
""")
latest.show(10, truncate=False)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Checksums and damage
# MAGIC
# MAGIC `crc_report` counts wrong checksums and damaged bytes; `quarantine` has each damaged range.

# COMMAND ----------

damage = spark.sql("""
    SELECT * FROM crc_report WHERE crc_failures > 0 OR damaged_bytes > 0 ORDER BY topic, partition, magic
""")
damage.show(20, truncate=False)
spark.sql("""
    SELECT topic, partition, position, size_bytes, reason, detail FROM quarantine ORDER BY topic, position
""").show(20, truncate=False)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Savings by compression
# MAGIC
# MAGIC Bytes of the payloads by codec, as stored and uncompressed.

# COMMAND ----------

codecs = spark.sql("""
    SELECT compression, sum(payload_bytes) AS stored, sum(uncompressed_bytes) AS expanded
    FROM batches WHERE status IN ('ok', 'suspect') GROUP BY compression ORDER BY compression
""").collect()

figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
for shift, (label, values) in enumerate(
    {"uncompressed": [c.expanded for c in codecs], "stored": [c.stored for c in codecs]}.items()
):
    places = [place + 0.4 * shift for place in range(len(codecs))]
    axes.barh(places, [value / 1000 for value in values], height=0.4, label=label)
axes.set_yticks([place + 0.2 for place in range(len(codecs))], [c.compression for c in codecs])
axes.set_xlabel("kB of payload")
axes.legend()
if plot:
    figure.savefig(plot, dpi=150)
if "display" in globals():
    display(figure)
elif not plot:
    plt.show()
