"""Declares the functions of typed values: plain values, without the decoders.

``udfs.values.typed.functions`` has their code.
"""

from __future__ import annotations

import pyarrow as pa

PAYLOAD = pa.struct(
    [
        pa.field("format", pa.string()),
        pa.field("schema_id", pa.int32()),
        pa.field("certainty", pa.string()),
        pa.field("reason", pa.string()),
    ]
)
TOPIC_FORMAT = pa.struct(
    [
        pa.field("kind", pa.string()),
        pa.field("key", pa.string()),
        pa.field("value", pa.string()),
        pa.field("certainty", pa.string()),
    ]
)
_HEADERS = "array<struct<key:string,value:binary>>"
# name -> the SQL types that it takes, the Arrow type that it gives
FUNCTIONS: dict[str, tuple[tuple[str, ...], pa.DataType]] = {
    "kafka_value": (("binary", "string"), pa.string()),
    "avro_to_json": (("binary", "int"), pa.string()),
    "schema_of": (("int",), pa.string()),
    "kafka_payload": (("string", "string", "binary", _HEADERS), PAYLOAD),
    "kafka_payload_json": (("string", "string", "binary", _HEADERS), pa.string()),
    "kafka_topic_format": (
        ("string", f"array<struct<key:binary,value:binary,headers:{_HEADERS}>>"),
        TOPIC_FORMAT,
    ),
    "kafka_payload_as": (("string", "string", "string", "binary"), pa.string()),
}
