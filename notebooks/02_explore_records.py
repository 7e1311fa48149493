# Databricks notebook source
# MAGIC %md
# MAGIC # Explore records
# MAGIC
# MAGIC Keys, values and headers of a lake that `01_ingest_and_decode` or `pipelines.decode_batches` wrote: as
# MAGIC text, as JSON, and split as Confluent's serializers write them.
# MAGIC
# MAGIC | widget | value outside Databricks | |
# MAGIC |---|---|---|
# MAGIC | `lake` | `lake` | folder or URI of the lake, or `catalog.schema` |
# MAGIC | `json_topic` | `compacted` | topic whose values are JSON |

# COMMAND ----------


import matplotlib.pyplot as plt
from pyspark.sql import functions as F

from kafka_log_lake import register
from kafka_log_lake.pipelines.cli.notebooks import path_widget, show, widget
from kafka_log_lake.pipelines.engine.session import get_session

lake = path_widget(globals(), "lake", "lake")
json_topic = widget(globals(), "json_topic", "compacted")
spark = get_session()
# What this notebook reads and calls: without `views` all are registered, which takes longer
views = ["topics", "published_records", "committed_records", "latest_by_key"]
register(spark, lake, views=[*views, "confluent_payload", "confluent_schema_id"])

# COMMAND ----------

# MAGIC %md
# MAGIC ## What is there
# MAGIC
# MAGIC `topics` sums up each topic: partitions, bytes, records, times, damage.

# COMMAND ----------

topics = spark.sql("""
    SELECT topic, partitions, segments, bytes, records, first_timestamp, last_timestamp, damaged_ranges
    FROM topics ORDER BY bytes DESC, topic
""")
topics.show(20, truncate=False)
largest = topics.limit(15).collect()

sizes, axes = plt.subplots(figsize=(8, 1.2 + 0.3 * len(largest)), layout="constrained")
axes.barh([row.topic for row in largest], [row.bytes / 1000 for row in largest], color="#2a78b5")
axes.set_title("Bytes on disk, the largest topics")
axes.set_xlabel("kB")
axes.invert_yaxis()
show(globals(), sizes)
totals = topics.agg(F.count("*"), F.sum("records"), F.sum("bytes"), F.sum("damaged_ranges")).first()
print(
    f"{totals[0]:,} topics, {totals[1]:,} records, {totals[2] / 1e6:,.1f} MB, {totals[3]:,} damaged ranges."
)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Committed records
# MAGIC
# MAGIC `published_records` has every record, control records too; `committed_records` those that a consumer
# MAGIC with `isolation.level=read_committed` reads.

# COMMAND ----------

committed = spark.sql("""
    SELECT r.topic, count(*) AS records, count_if(r.is_control) AS markers, count(c.offset) AS committed
    FROM published_records r LEFT JOIN committed_records c ON c.segment = r.segment AND c.offset = r.offset
    GROUP BY r.topic HAVING count(*) > count(c.offset) ORDER BY records DESC, r.topic
""")
committed.show(20, truncate=False)
print(f"In {committed.count():,} topics a READ_COMMITTED consumer gets fewer records than are stored.")

# COMMAND ----------

# MAGIC %md
# MAGIC ## JSON values
# MAGIC
# MAGIC Values are bytes. `from_json` parses them as text, with the fields that you expect; a value
# MAGIC that is not JSON gives null fields.

# COMMAND ----------

fields = "id INT, name STRING, amount DOUBLE, flag BOOLEAN"
values = spark.table("committed_records").where(F.col("topic") == json_topic).where("value IS NOT NULL")
json_values = values.select(
    "partition",
    "offset",
    F.expr("CAST(key AS STRING)").alias("key"),
    F.from_json(F.expr("CAST(value AS STRING)"), fields).alias("json"),
)
parsed = json_values.where("json.id IS NOT NULL").select("partition", "offset", "key", "json.*")
parsed.orderBy("partition", "offset").show(10, truncate=False)
print(f"{parsed.count():,} of {values.count():,} values of {json_topic} are JSON objects with an id.")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Headers
# MAGIC
# MAGIC One row for each header of a record, in order and with repeats. A value is bytes, or null.

# COMMAND ----------

headers = spark.sql("""
    SELECT h.key, count(*) AS headers, count(DISTINCT topic) AS topics,
      count_if(h.value IS NULL) AS null_values, max(length(h.value)) AS longest
    FROM published_records LATERAL VIEW explode(headers) AS h
    GROUP BY h.key ORDER BY headers DESC, h.key
""")
headers.show(10, truncate=False)
print(f"{headers.count():,} different header keys.")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Values of Confluent's serializers
# MAGIC
# MAGIC They begin with a zero byte and the id of their schema. `confluent_schema_id` and `confluent_payload`
# MAGIC split them; other values give null.

# COMMAND ----------

schemas = spark.sql("""
    SELECT topic, confluent_schema_id(value) AS schema_id, count(*) AS records,
      max(length(confluent_payload(value))) AS longest_payload
    FROM published_records WHERE NOT is_control AND confluent_schema_id(value) IS NOT NULL
    GROUP BY ALL ORDER BY ALL
""")
schemas.show(10, truncate=False)
print(f"{schemas.count():,} pairs of topic and schema id. A single record of one may be chance.")

# COMMAND ----------

# MAGIC %md
# MAGIC ## The latest value of every key
# MAGIC
# MAGIC As compaction would keep it: without tombstones and null keys.

# COMMAND ----------

latest = spark.sql("""
    SELECT topic, partition, offset, CAST(key AS STRING) AS key, left(CAST(value AS STRING), 40) AS value
    FROM latest_by_key ORDER BY topic, partition, offset
""")
latest.show(10, truncate=False)
