# Databricks notebook source
# MAGIC %md
# MAGIC # Transactions and producers
# MAGIC
# MAGIC Who wrote in which transaction, how it ended, which transaction holds back consumers, and whether the
# MAGIC producers' sequence numbers are complete.
# MAGIC
# MAGIC | widget | value outside Databricks | |
# MAGIC |---|---|---|
# MAGIC | `lake` | `lake` | folder, URI or `catalog.schema` of a lake that `01_ingest_and_decode` wrote |
# MAGIC | `topic` | | topic of the timeline; empty: the one with the most transactions |

# COMMAND ----------


import matplotlib.pyplot as plt

from kafka_log_lake import register
from kafka_log_lake.pipelines.cli.notebooks import path_widget, show, widget
from kafka_log_lake.pipelines.engine.session import get_session

lake = path_widget(globals(), "lake", "lake")
topic = widget(globals(), "topic", "")
spark = get_session()
# What this notebook reads: without `views` all are registered, which takes longer
register(
    spark, lake, views=["current_transactions", "logs", "hanging_transactions", "producers", "offset_gaps"]
)
COLOURS = {"committed": "#2a78b5", "aborted": "#d1495b", "open": "#edae49"}

# COMMAND ----------

# MAGIC %md
# MAGIC ## How transactions ended
# MAGIC
# MAGIC `current_transactions` has one row for each transaction of a producer in a partition.

# COMMAND ----------

outcomes = spark.sql("""
    SELECT topic, outcome, count(*) AS transactions, sum(records) AS records
    FROM current_transactions WHERE first_offset IS NOT NULL
    GROUP BY topic, outcome ORDER BY topic, outcome
""").collect()
topics = sorted({row.topic for row in outcomes})
counts = {(row.topic, row.outcome): row.transactions for row in outcomes}

endings, axes = plt.subplots(figsize=(8, 1.2 + 0.4 * len(topics)), layout="constrained")
left = [0] * len(topics)
for outcome, colour in COLOURS.items():
    values = [counts.get((name, outcome), 0) for name in topics]
    axes.barh(topics, values, left=left, color=colour, label=outcome)
    left = [before + value for before, value in zip(left, values, strict=True)]
axes.set_title("Transactions by topic and outcome")
axes.set_xlabel("transactions")
axes.invert_yaxis()
endings.legend(ncols=3, loc="outside lower center")
show(globals(), endings)
total = sum(row.transactions for row in outcomes)
aborted = [row for row in outcomes if row.outcome == "aborted"]
print(
    f"{sum(row.transactions for row in aborted):,} of {total:,} transactions were aborted: "
    f"READ_COMMITTED consumers skip their {sum(row.records for row in aborted):,} records."
)

# COMMAND ----------

# MAGIC %md
# MAGIC ## A timeline of one topic
# MAGIC
# MAGIC Each bar is a transaction from its first offset to its marker; each producer id has a separate line.

# COMMAND ----------

if not topic and counts:
    topic = max(topics, key=lambda name: sum(counts.get((name, outcome), 0) for outcome in COLOURS))
of_all = spark.sql("""
    SELECT t.topic, t.partition, t.producer_id, t.first_offset, t.outcome,
      coalesce(t.marker_offset, l.last_offset) AS last_offset
    FROM current_transactions t JOIN logs l ON l.topic = t.topic AND l.partition_dir = t.partition_dir
    WHERE t.first_offset IS NOT NULL ORDER BY t.partition, t.producer_id, t.first_offset
""")
bars = of_all.where(of_all.topic == topic).collect()
lines = sorted({(row.partition, row.producer_id) for row in bars})

timeline, axes = plt.subplots(figsize=(9, 1.4 + 0.45 * len(lines)), layout="constrained")
for row in bars:
    place, width = lines.index((row.partition, row.producer_id)), row.last_offset - row.first_offset + 1
    axes.barh(place, width, left=row.first_offset, height=0.7, color=COLOURS[row.outcome], edgecolor="white")
axes.set_yticks(range(len(lines)), [f"partition {p}, producer {number}" for p, number in lines])
axes.set_title(f"Transactions in {topic}, by offset")
axes.set_xlabel("offset")
axes.invert_yaxis()
keys = [plt.Rectangle((0, 0), 1, 1, color=colour) for colour in COLOURS.values()]
timeline.legend(keys, COLOURS, ncols=3, loc="outside lower center")
show(globals(), timeline)
print(
    f"{topic}: {len(bars):,} transactions of {len(lines):,} producers; those of one producer never overlap."
)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Hanging transactions
# MAGIC
# MAGIC Open for longer than the brokers' `transaction.max.timeout.ms`. No consumer with `read_committed` gets
# MAGIC past the last stable offset, and the log cleaner stops there.

# COMMAND ----------

hanging = spark.sql("""
    SELECT topic, partition, producer_id, first_offset, open_ms, certainty, why, held_records, held_bytes,
      coalesce(abort_command, check_command) AS run
    FROM hanging_transactions ORDER BY held_bytes DESC
""")
hanging.show(20, truncate=False)
found = hanging.collect()
for row in found:
    print(
        f"{row.topic}-{row.partition}: {row.held_records:,} records wait after offset {row.first_offset:,}."
    )
if not found:
    print("No transaction hangs.")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Producers
# MAGIC
# MAGIC The sequence numbers of an idempotent producer follow each other. A gap is a batch that is missing:
# MAGIC damaged, lost, or removed by the log cleaner.

# COMMAND ----------

producers = spark.sql("""
    SELECT topic, partition, producer_id, producer_epoch, first_offset, last_offset, records,
      sequence_gaps, missing_sequences, duplicates, resets, next_epoch
    FROM producers WHERE producer_id >= 0 ORDER BY missing_sequences DESC, topic, partition, producer_id
""")
producers.show(20, truncate=False)
incomplete = producers.where("sequence_gaps + duplicates + resets > 0").count()
print(f"{incomplete:,} of {producers.count():,} producer epochs have a gap, a duplicate or a reset.")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Why offsets are missing
# MAGIC
# MAGIC `offset_gaps` has the cause of each missing offset: compaction, damage, markers, aborted transactions.

# COMMAND ----------

causes = spark.sql("""
    SELECT cause, sum(offsets) AS offsets, count(*) AS ranges FROM offset_gaps
    WHERE offsets IS NOT NULL GROUP BY cause ORDER BY offsets DESC, cause
""").collect()

gaps, axes = plt.subplots(figsize=(8, 1.2 + 0.4 * len(causes)), layout="constrained")
axes.barh([row.cause.replace("_", " ") for row in causes], [row.offsets for row in causes], color="#2a78b5")
axes.set_xscale("log")
axes.set_title("Offsets that a consumer does not get, by cause")
axes.set_xlabel("offsets (logarithmic)")
axes.invert_yaxis()
show(globals(), gaps)
if causes:
    print(f"The most common cause is {causes[0].cause.replace('_', ' ')}: {causes[0].offsets:,} offsets.")
