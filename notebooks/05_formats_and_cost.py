# Databricks notebook source
# MAGIC %md
# MAGIC # Formats and cost
# MAGIC
# MAGIC The bytes of a lake's records in each message format and codec, and their cost. The sizes of
# MAGIC formats are exact; those of codecs are measured on a sample of real batches.
# MAGIC
# MAGIC | widget | value outside Databricks | |
# MAGIC |---|---|---|
# MAGIC | `lake` | `lake` | folder or URI of a lake that `01_ingest_and_decode` wrote; no `catalog.schema` |
# MAGIC | `topics` | `.*` | regular expression over whole topic names |

# COMMAND ----------


import matplotlib.pyplot as plt

from kafka_log_lake import register
from kafka_log_lake.pipelines.cli.notebooks import path_widget, show, widget
from kafka_log_lake.pipelines.cli.settings import CostSettings
from kafka_log_lake.pipelines.engine.session import get_session
from kafka_log_lake.pipelines.format_report import command as format_report

lake = path_widget(globals(), "lake", "lake")
topics = widget(globals(), "topics", ".*")
spark = get_session()
BLUE, GREY = "#2a78b5", "#9aa5b1"

# COMMAND ----------

# MAGIC %md
# MAGIC ## The report
# MAGIC
# MAGIC It fills the table `format_savings`, and writes nothing if neither the lake nor the settings changed.

# COMMAND ----------

report = format_report.run(spark, CostSettings(lake=lake, topics=topics))
# What this notebook reads: without `views` all are registered, which takes longer
register(spark, lake, views="format_savings")
spark.sql("""
    CREATE OR REPLACE TEMPORARY VIEW savings AS
    SELECT * FROM format_savings WHERE created_at = (SELECT max(created_at) FROM format_savings)
""")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Message formats
# MAGIC
# MAGIC The same data records, uncompressed, in the batches that they are in. V0 and V1 cannot hold headers:
# MAGIC their sizes are without them.

# COMMAND ----------

formats = spark.sql("""
    SELECT layout, sum(bytes) AS bytes FROM savings
    WHERE layout IN ('v0', 'v1', 'v2', 'v3_proposal') AND batch_records IS NULL AND codec = 'none'
    GROUP BY layout ORDER BY layout
""").collect()

layouts, axes = plt.subplots(figsize=(8, 2.8), layout="constrained")
axes.barh(
    [row.layout.replace("_", " ") for row in formats], [row.bytes / 1000 for row in formats], color=BLUE
)
axes.set_title("The same records in each message format, uncompressed")
axes.set_xlabel("kB")
axes.invert_yaxis()
show(globals(), layouts)
taken = {row.layout: row.bytes for row in formats}
saved = 100 * (taken["v1"] - taken["v2"]) / taken["v1"]
print(f"V2 takes {abs(saved):.1f} % {'less' if saved >= 0 else 'more'} than V1.")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Batching
# MAGIC
# MAGIC A V2 batch header takes 61 bytes. Its share depends on the number of records per batch.

# COMMAND ----------

batching = spark.sql("""
    SELECT batch_records, sum(bytes) AS bytes, sum(records) AS records FROM savings
    WHERE layout = 'v2' AND codec = 'none' GROUP BY batch_records ORDER BY batch_records
""").collect()

sizes, axes = plt.subplots(figsize=(8, 3), layout="constrained")
labels = ["as they are" if row.batch_records is None else f"{row.batch_records:,}" for row in batching]
axes.bar(labels, [row.bytes / row.records for row in batching], color=[GREY, *[BLUE] * len(batching)])
axes.set_title("V2: bytes a record by records a batch, uncompressed")
axes.set_xlabel("records a batch")
axes.set_ylabel("bytes a record")
show(globals(), sizes)
for label, row in zip(labels, batching, strict=True):
    print(f"records a batch, {label}: {row.bytes / row.records:,.1f} bytes a record.")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Codecs
# MAGIC
# MAGIC Estimated by compressing a sample of the batches as V2. `monthly_cost` follows from the settings
# MAGIC `price_per_gb_month` and `replication_factor`.

# COMMAND ----------

codecs = spark.sql("""
    SELECT codec, level, sum(bytes) AS bytes, round(sum(bytes) / sum(bytes + saved_bytes), 3) AS of_stored,
      sum(sample_bytes_in) AS sample_bytes, round(sum(sample_seconds), 3) AS sample_seconds,
      sum(monthly_cost) AS monthly_cost
    FROM savings WHERE layout = 'v2' AND batch_records IS NULL AND codec <> 'none'
    GROUP BY codec, level ORDER BY bytes
""")
codecs.show(20, truncate=False)
measured = codecs.collect()

compressed, axes = plt.subplots(figsize=(8, 1.4 + 0.35 * len(measured)), layout="constrained")
names = [row.codec if row.level is None else f"{row.codec} {row.level}" for row in measured]
axes.barh(names, [row.bytes / 1000 for row in measured], color=BLUE)
axes.axvline(taken["v2"] / 1000, color=GREY, linestyle="--", label="uncompressed")
axes.set_title("V2 by codec and level, estimated from a sample")
axes.set_xlabel("kB")
axes.invert_yaxis()
compressed.legend(loc="outside lower center")
show(globals(), compressed)
if measured:
    print(f"{names[0]} takes the least: {100 * measured[0].bytes / taken['v2']:.1f} % of uncompressed V2.")

# COMMAND ----------

# MAGIC %md
# MAGIC ## The topics that cost most

# COMMAND ----------

costs = spark.sql("""
    SELECT topic, sum(bytes) AS bytes, sum(monthly_cost) AS monthly_cost,
      sum(retention_cost) AS retention_cost
    FROM savings WHERE layout = 'stored' GROUP BY topic ORDER BY bytes DESC, topic
""")
costs.show(10, truncate=False)
