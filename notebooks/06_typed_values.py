# Databricks notebook source
# MAGIC %md
# MAGIC # Typed values
# MAGIC
# MAGIC Keys and values, decoded by the schemas in the topic `_schemas` of the same log directory: no registry
# MAGIC and no broker is needed. The bundled logs were written by Confluent's serializers.
# MAGIC
# MAGIC | widget | value outside Databricks | |
# MAGIC |---|---|---|
# MAGIC | `source` | `tests/data/typed/data` | log directory with `_schemas`, searched at any depth |
# MAGIC | `lake` | `typed-lake` | folder or URI of the lake to write to |
# MAGIC | `topics` | `.*` | regular expression over whole topic names; `_schemas` must match it |
# MAGIC | `topic` | `avro-evolution` | the topic whose typed table is shown |

# COMMAND ----------


import matplotlib.pyplot as plt

from kafka_log_lake.pipelines import decode_batches, register
from kafka_log_lake.pipelines.cli.notebooks import path_widget, show, widget
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.engine.session import get_session

source = path_widget(globals(), "source", "tests/data/typed/data")
lake = path_widget(globals(), "lake", "typed-lake")
topics = widget(globals(), "topics", ".*")
topic = widget(globals(), "topic", "avro-evolution")
spark = get_session()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Decode
# MAGIC
# MAGIC One job makes the tables of bytes, and a typed table for each topic. A second run decodes what is new.

# COMMAND ----------

decoded = decode_batches.run(spark, Settings(source=(source,), lake=lake, topics=topics, typed=True))
register(spark, lake)
for one in decoded.typed or ():
    print(f"{one['topic']:<28} {one['rows']:>8,} records  {one['errors']:>6,} errors")

# COMMAND ----------

# MAGIC %md
# MAGIC ## The schemas
# MAGIC
# MAGIC Each version of each subject, deleted ones too, with the offsets in `_schemas` between which it
# MAGIC was valid.

# COMMAND ----------

schemas = spark.sql("""
    SELECT type, count(*) AS schemas, count(DISTINCT subject) AS subjects, count(deleted) AS deleted
    FROM schemas GROUP BY type ORDER BY type
""")
schemas.show()

# COMMAND ----------

# MAGIC %md
# MAGIC ## What the payloads are
# MAGIC
# MAGIC Per topic and side: the format, how sure that is, and the share that decodes.

# COMMAND ----------

profile = spark.sql("""
    SELECT topic, side, format, certainty, payloads, round(decoded_share, 3) AS decodes FROM payload_profile
    ORDER BY topic, side, payloads DESC
""")
profile.show(200, truncate=False)

# COMMAND ----------

# MAGIC %md
# MAGIC ## A typed table
# MAGIC
# MAGIC All versions of a schema are in one column: a field that a version lacks is null.

# COMMAND ----------

typed = spark.table(f"`typed.{topic}`")
typed.printSchema()
typed.select("partition", "offset", "key", "value", "value_schema_id").show(10, truncate=80)

# COMMAND ----------

# MAGIC %md
# MAGIC ## What could not be decoded
# MAGIC
# MAGIC Each such key or value is a row of `value_errors`, with its bytes and the reason. Other rows are
# MAGIC not affected.

# COMMAND ----------

query = "SELECT reason, count(*) AS payloads FROM value_errors GROUP BY reason ORDER BY payloads, reason"
# The table is made for the first such row
reasons = spark.sql(query).collect() if spark.catalog.tableExists("value_errors") else []

errors, axes = plt.subplots(figsize=(8, 0.6 + 0.3 * len(reasons)), layout="constrained")
axes.barh([row.reason for row in reasons], [row.payloads for row in reasons], color="#2a78b5")
axes.set_title("Keys and values that could not be decoded")
axes.set_xlabel("payloads")
show(globals(), errors)
