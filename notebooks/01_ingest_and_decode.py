# Databricks notebook source
# MAGIC %md
# MAGIC # Decode Kafka log segments into Delta tables
# MAGIC
# MAGIC Decodes the segment files of a log directory into the tables of a lake. A second run decodes only new
# MAGIC and changed segments. With `land_raw` set to `yes` the bytes are copied to `raw_segments` first, and
# MAGIC decoded from there: use it if the broker soon deletes its segments.
# MAGIC
# MAGIC Widgets, with the values they have outside Databricks:
# MAGIC
# MAGIC | widget | value | |
# MAGIC |---|---|---|
# MAGIC | `source` | `tests/data/corpus/v2-*` | log directory, partition folder, `.log` file or glob |
# MAGIC | `lake` | `lake` | folder or URI of the lake, or `catalog.schema`; created if missing |
# MAGIC | `topics` | `.*` | regular expression over whole topic names |
# MAGIC | `land_raw` | `no` | `yes` copies the bytes to `raw_segments` first |
# MAGIC | `streamed` | `lake-streamed` | folder or URI of the last table; name one for a `catalog.schema` |

# COMMAND ----------


from kafka_log_lake.pipelines import decode_batches, ingest_raw, register
from kafka_log_lake.pipelines.cli.notebooks import path_widget, sink_of, widget
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.engine.session import get_session

source = path_widget(globals(), "source", "tests/data/corpus/v2-*")
lake = path_widget(globals(), "lake", "lake")
topics = widget(globals(), "topics", ".*")
land_raw = widget(globals(), "land_raw", "no") == "yes"
streamed = widget(globals(), "streamed", f"{lake}-streamed")
sink = sink_of(lake)
spark = get_session()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Land and decode

# COMMAND ----------

if land_raw:
    landed = ingest_raw.run(spark, Settings(source=source, lake=lake, topics=topics, sink=sink))
    print(landed.to_text())
    decoded = decode_batches.run(spark, Settings(from_raw=True, lake=lake, topics=topics, sink=sink))
else:
    decoded = decode_batches.run(spark, Settings(source=source, lake=lake, topics=topics, sink=sink))
print(decoded.to_text())
for warning in decoded.warnings:
    print("warning:", warning)

# COMMAND ----------

# MAGIC %md
# MAGIC ## The ledger
# MAGIC
# MAGIC One row per segment. `decoded_bytes` + `tail_bytes` = `length`: every byte is accounted for.

# COMMAND ----------

# What this notebook reads: without `views` all are registered, which takes longer
register(spark, lake, views="segments")
ledger = spark.sql("""
    SELECT topic, partition, file_base_offset, length, decoded_bytes, batches, records, damaged, tail
    FROM segments ORDER BY topic, partition, file_base_offset
""")
ledger.show(20, truncate=False)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Files that Spark lists, as a stream
# MAGIC
# MAGIC Spark lists complete segments; `decode_frame` gives the records, and damage as rows with `error`.
# MAGIC Without the column `content` the tasks open the files, of any size; with it Spark brings their
# MAGIC bytes.
# MAGIC With Auto Loader the format is `cloudFiles`, with the option `cloudFiles.format` set to `binaryFile`.

# COMMAND ----------

from kafka_log_lake import decode_frame

files = (
    spark.readStream.format("binaryFile")
    .schema("path string, modificationTime timestamp, length bigint, content binary")
    .option("recursiveFileLookup", "true")
    .option("pathGlobFilter", "*.log")
    .load(source)
    .drop("content")
)
records = decode_frame(files, columns=["topic", "partition", "offset", "timestamp", "key", "value", "error"])
query = (
    records.writeStream.format("delta")
    .option("checkpointLocation", f"{streamed}/_checkpoint")
    .trigger(availableNow=True)
    .start(streamed)
)
query.awaitTermination()
spark.read.format("delta").load(streamed).groupBy("topic", "error").count().show(20, truncate=False)
