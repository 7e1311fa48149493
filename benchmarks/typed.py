"""Values by their schemas: Avro and Protobuf compared with their peers; the typed job.

fastavro, Google's reader and ``json`` make Python objects and no columns. Processor time of one
process, of Spark the clock (``typed_peers``). The typed job is ``decode --typed`` against ``decode`` over the
same segments, each a process as a person starts it.
"""

from __future__ import annotations

import io
import json
import random
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import fastavro
import numpy as np
import pyarrow as pa
from google.protobuf import message_factory

from benchmarks.harness import Row, Scale, paired, part_main, per_second, say
from benchmarks.segments import MIB, WORK, repeat, size_of
from benchmarks.typed_peers import Spark, ptars
from kafka_log_lake.udfs.format.encode import PlainRecord
from kafka_log_lake.udfs.kernels.checksums import crc32c
from kafka_log_lake.udfs.values.internal.encode import record_batch
from kafka_log_lake.udfs.values.protobuf import schema as protobuf_schema
from kafka_log_lake.udfs.values.schemas.payloads import PayloadReader
from kafka_log_lake.udfs.values.schemas.registry import AVRO, JSON_SCHEMA, PROTOBUF, Registry, Schema
from kafka_log_lake.udfs.values.typed.columns import SideDecoder

_ROWS, _BATCH = 100_000, 100
_AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "quantity", "type": ["null", "int"]},
        {"name": "city", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {
            "name": "item",
            "type": {"type": "record", "name": "Item", "fields": [{"name": "sku", "type": "string"}]},
        },
        {"name": "note", "type": "string"},
    ],
}
_PROTOBUF = """syntax = "proto3";
message Order { int64 id = 1; string customer = 2; double amount = 3; optional int32 quantity = 4;
  string city = 5; int64 at = 6; repeated string tags = 7; Item item = 8; string note = 9; }
message Item { string sku = 1; }
"""
_GOAL_OF_FASTAVRO, _GOAL_OF_JOB = 10.0, 2.0


def measure(scale: Scale) -> list[Row]:
    return list(_rows(scale))


def _orders() -> Iterator[dict[str, object]]:
    rng = random.Random(1)
    for at in range(_ROWS):
        yield {
            "id": at,
            "customer": f"customer-{rng.randrange(10**6)}",
            "amount": rng.random() * 100,
            "quantity": rng.choice((None, 1, 2)),
            "city": rng.choice(("Paris", "Oslo", "Lagos")),
            "at": 1_700_000_000_000 + at,
            "tags": ["new", "gift"][: rng.randrange(3)],
            "item": {"sku": f"sku-{rng.randrange(1000)}"},
            "note": "x" * 40,
        }


def _avro_payloads() -> list[bytes]:
    schema, found = fastavro.parse_schema(_AVRO), []
    for one in _orders():
        out = io.BytesIO(b"\0\0\0\0\1")
        out.seek(5)
        fastavro.schemaless_writer(out, schema, one)
        found.append(out.getvalue())
    return found


def _seconds(run: Callable[[], object]) -> float:
    began = time.process_time()
    run()
    return time.process_time() - began


def _rows(scale: Scale) -> Iterator[Row]:
    yield from _avro_rows(scale)
    yield from _protobuf_rows(scale)
    yield from _json_rows(scale)
    yield _job(scale, _avro_payloads())


def _avro_rows(scale: Scale) -> Iterator[Row]:
    payloads, schema = _avro_payloads(), fastavro.parse_schema(_AVRO)

    def by_fastavro() -> None:
        for one in payloads:
            fastavro.schemaless_reader(io.BytesIO(one[5:]), schema)

    with Spark("spark-avro") as spark:
        peers: dict[str, Callable[[], float]] = {
            "fastavro": partial(_seconds, by_fastavro),
            "Spark's from_avro": spark.avro([one[5:] for one in payloads], _AVRO),
        }
        yield from _next_to(
            scale, "Avro to columns", Schema("t-value", 1, 1, "", AVRO, json.dumps(_AVRO)), payloads, peers
        )


def _protobuf_rows(scale: Scale) -> Iterator[Row]:
    descriptor = protobuf_schema.message_at(protobuf_schema.parse(_PROTOBUF), (0,))
    kind = message_factory.GetMessageClass(descriptor)
    messages = [kind(**one).SerializeToString() for one in _orders()]

    def by_google() -> None:
        for one in messages:
            kind.FromString(one)

    peers: dict[str, Callable[[], float]] = {
        "ptars": partial(_seconds, ptars(descriptor, messages)),
        "protobuf's FromString": partial(_seconds, by_google),
    }
    framed = [b"\0\0\0\0\1\0" + one for one in messages]
    with ExitStack() as stack:
        try:
            spark = stack.enter_context(Spark("spark-protobuf"))
        except RuntimeError as error:
            say(f"  without Spark's from_protobuf: {str(error).splitlines()[0]}")
        else:
            peers["Spark's from_protobuf"] = spark.protobuf(messages, descriptor)
        of_schema = Schema("t-value", 1, 1, "", PROTOBUF, _PROTOBUF)
        yield from _next_to(scale, "Protobuf to columns", of_schema, framed, peers)


def _json_rows(scale: Scale) -> Iterator[Row]:
    texts = [json.dumps(one).encode() for one in _orders()]

    def by_python() -> None:
        for one in texts:
            json.loads(one)

    schema = Schema("t-value", 1, 1, "", JSON_SCHEMA, "{}")
    for infers, name in ((True, "JSON to structs"), (False, "JSON to texts")):
        framed = [b"\0\0\0\0\1" + one for one in texts]
        peers = {"json.loads": partial(_seconds, by_python)}
        yield from _next_to(scale, name, schema, framed, peers, infers)


def _next_to(
    scale: Scale,
    name: str,
    schema: Schema,
    payloads: list[bytes],
    peers: Mapping[str, Callable[[], float]],
    infers: bool = False,
) -> Iterator[Row]:
    """A row for each peer; the first of Avro's has the goal. Types are known, as after the first file."""
    column, size = pa.array(payloads, pa.binary()), sum(map(len, payloads))
    reader = PayloadReader(Registry([schema]))
    types: dict[str, pa.DataType] = {}

    def ours() -> None:
        decoder = SideDecoder(reader, "t", "value", "", types, infers)
        found = decoder.decode(column)
        types.update(decoder.types)
        if found.wrong or len(found.column(decoder.types)) != len(column):
            raise RuntimeError("not every payload was decoded")

    say(f"  {name}, {size // len(payloads)} bytes a payload")
    ours()  # compiles the kernels where they are new
    pairs = paired(scale.rounds, {"ours": partial(_seconds, ours), **peers})
    for peer in peers:
        is_goal = peer == "fastavro"
        yield Row(
            name if peer == next(iter(peers)) else f"{name}, {peer}",
            "MB/s",
            pairs.spread("ours", per_second(size)),
            peer,
            pairs.spread(peer, per_second(size)),
            ratio=pairs.ratio(peer, "ours"),
            goal=_GOAL_OF_FASTAVRO if is_goal else None,
            note=f"{size // len(payloads)} bytes a payload",
        )


def _job(scale: Scale, payloads: list[bytes]) -> Row:
    logs = _log_directory(payloads, 2 * scale.job_bytes)
    lake = WORK / "typed-lake"

    def decode(*options: str) -> float:
        shutil.rmtree(lake, ignore_errors=True)
        command = (
            sys.executable,
            "-m",
            "pipelines.decode_batches",
            "--source",
            logs,
            "--lake",
            lake,
            *options,
        )
        began = time.perf_counter()
        subprocess.run(list(map(str, command)), check=True, capture_output=True)
        return time.perf_counter() - began

    size = size_of(logs)
    say(f"  the job over {size // MIB} MiB, with and without --typed")
    decode("--typed")  # compiles the kernels where they are new
    pairs = paired(scale.job_rounds, {"typed": lambda: decode("--typed"), "plain": decode})
    shutil.rmtree(lake, ignore_errors=True)
    return Row(
        *("decode --typed", "s", pairs.spread("typed")),
        *("decode", pairs.spread("plain"), pairs.ratio("typed", "plain")),
        goal=_GOAL_OF_JOB,
        at_least=False,
        note=f"{size // MIB} MiB of segments with Avro",
    )


def _log_directory(payloads: list[bytes], size: int) -> Path:
    """Two partitions of a topic, and the registry."""
    root = WORK / "logs" / f"typed-100-{size}"
    if root.exists():
        return root
    made = root.with_suffix(".part")
    shutil.rmtree(made, ignore_errors=True)
    base = made / "base"
    base.parent.mkdir(parents=True)
    base.write_bytes(b"".join(_batches(payloads)))
    for partition in range(2):
        (made / f"orders-{partition}").mkdir()
        repeat(base, made / f"orders-{partition}" / f"{0:020d}.log", size // 2)
    base.unlink()
    key = {"keytype": "SCHEMA", "subject": "orders-value", "version": 1, "magic": 1}
    value = {"subject": "orders-value", "version": 1, "id": 1, "schema": json.dumps(_AVRO), "deleted": False}
    record = PlainRecord(0, 1_700_000_000_000, json.dumps(key).encode(), json.dumps(value).encode())
    (made / "_schemas-0").mkdir()
    (made / "_schemas-0" / f"{0:020d}.log").write_bytes(record_batch([record], 0, 0, _checksum))
    made.rename(root)
    return root


def _checksum(data: bytes) -> int:
    return crc32c(np.frombuffer(data, np.uint8), 0, len(data))


def _batches(payloads: list[bytes]) -> Iterator[bytes]:
    for begin in range(0, len(payloads), _BATCH):
        records = [
            PlainRecord(begin + at, 1_700_000_000_000 + begin + at, struct.pack(">i", begin + at), one)
            for at, one in enumerate(payloads[begin : begin + _BATCH])
        ]
        yield record_batch(records, 0, 0, _checksum)


if __name__ == "__main__":
    part_main("typed", measure)
