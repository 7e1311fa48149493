"""``spark.read.format("kafka_log")``: segments as a DataFrame, by Spark's Python data source API.

Planning runs in a Python process of Spark without a session and without a JVM: ``options`` checks what the
user asks for, ``slices`` finds where batches begin and makes input partitions. ``udfs.spark.table_rows``
decodes them on the executors. ``source`` is what Spark calls, and ``stream`` its reader for ``readStream``,
which says how far it has read each log.
"""
