"""The SQL functions that read records of Kafka's internal topics, as Arrow functions of ``udfs.values``.

- ``kafka_internal_record(topic, key, value)``: any record of an internal topic, key and value as JSON
- ``kafka_offset_commit(key, value)``: a record of ``__consumer_offsets`` that is an offset commit
- ``kafka_transaction_state(key, value)``: a record of ``__transaction_state``
"""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]  # not in its type hints
from pyspark.sql.pandas.types import from_arrow_type

from udfs.values.columns import FUNCTIONS


def register_internal_topics(spark: SparkSession, text: str = "") -> None:
    """Registers the functions in a session. A null struct means: not a record of that kind.

    text: SQL; the functions that it names are enough. "" for all.
    """
    for name, (_, function, gives) in FUNCTIONS.items():
        if not text or name in text.lower():
            spark.udf.register(name, arrow_udf(function, from_arrow_type(gives)))
