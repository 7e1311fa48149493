"""Reads segments as DataFrames and Arrow tables, and writes nothing: ``kafka_log`` and ``decode_frame``.

The data source plans in a Python process of Spark without a session and without a JVM: ``options`` checks
what the user asks for, ``slices`` finds where batches begin and makes input partitions, which
``udfs.spark.table_rows`` decodes on the executors. ``source`` is what Spark calls, and ``stream`` its reader
for ``readStream``. ``frame`` decodes the bytes that a DataFrame brings; ``folders`` needs no Spark.
"""
