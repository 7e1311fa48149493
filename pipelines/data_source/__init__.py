"""``spark.read.format("kafka_log")``: segments as a DataFrame, by Spark's Python data source API.

Planning runs in a Python process of Spark without a session and without a JVM: ``options`` checks what the
user asks for, ``slices`` finds where batches begin and makes input partitions.
``udfs.spark.table_rows`` decodes them on the executors. ``source`` is what Spark calls, ``stream`` its reader
for ``readStream``, and ``follow`` says how far a stream has read each log.
"""
