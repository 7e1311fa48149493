"""Peers of typed values that make columns: ptars, and Spark's ``from_avro`` and ``from_protobuf``.

Spark runs on one core, over payloads that it holds in memory, and writes what it decodes nowhere; its figure
is by the clock and includes planning, so that it gets the payloads many times over. None of the three says
which payloads it can't read: ptars fails the whole column, Spark the query, or it makes nulls.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
from google.protobuf import descriptor_pb2
from pyspark.sql import Column, SparkSession
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.protobuf.functions import from_protobuf

from benchmarks.kafka import resolve
from benchmarks.segments import WORK

TIMES = 10  # as many payloads of each kind Spark gets


def ptars(descriptor: Any, messages: Sequence[bytes]) -> Callable[[], object]:
    """Decodes bare messages to a record batch."""
    import ptars as library

    handler = library.HandlerPool([descriptor.file]).get_for_message(descriptor)
    column = pa.array(messages, pa.binary())
    return lambda: handler.array_to_record_batch(column)


class Spark:
    """A session of Spark on one core, with one of its modules.

    Its runs return the seconds of a TIMES-th of what they decode.
    """

    def __init__(self, module: str) -> None:
        """Raises a RuntimeError where the module can't be had."""
        jars = [str(jar) for jar in resolve(f"org.apache.spark:{module}_2.13:{pyspark.__version__}")]
        builder = SparkSession.builder.master("local[1]").config("spark.jars", ",".join(jars))
        for name, value in {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "2g",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.log.level": "ERROR",
        }.items():
            builder = builder.config(name, value)
        self._spark = builder.getOrCreate()

    def avro(self, payloads: Sequence[bytes], schema: object) -> Callable[[], float]:
        return self._run("avro", payloads, from_avro("payload", json.dumps(schema)))

    def protobuf(self, payloads: Sequence[bytes], descriptor: Any) -> Callable[[], float]:
        files = descriptor_pb2.FileDescriptorSet()
        descriptor.file.CopyToProto(files.file.add())
        decode = from_protobuf("payload", descriptor.name, binaryDescriptorSet=files.SerializeToString())
        return self._run("protobuf", payloads, decode)

    def _run(self, name: str, payloads: Sequence[bytes], decode: Column) -> Callable[[], float]:
        WORK.mkdir(parents=True, exist_ok=True)
        path = WORK / f"typed-{name}.parquet"
        pq.write_table(pa.table({"payload": pa.array([*payloads] * TIMES, pa.binary())}), path)
        frame = self._spark.read.parquet(str(path)).cache()
        frame.count()

        def run() -> float:
            began = time.perf_counter()
            frame.select(decode.alias("value")).write.format("noop").mode("overwrite").save()
            return (time.perf_counter() - began) / TIMES

        run()
        return run

    def __enter__(self) -> Spark:
        return self

    def __exit__(self, *_: object) -> None:
        self._spark.stop()
