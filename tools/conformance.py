"""Makes the vectors of ``conformance/``: ``python -m tools.conformance``.

Batches come from the tests' maker of segments; what a decoder has to give of them is what Kafka's own library
reads. Vectors are data alone: ``<name>.bin``, the bytes of a partition's log, and ``<name>.json``.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kafka.reader import PACKAGE, read_segments
from tests.support.logs import marker
from tests.support.segment_maker import (
    DELETE_HORIZON,
    GZIP,
    LOG_APPEND,
    LZ4,
    SNAPPY,
    TRANSACTIONAL,
    ZSTD,
    Batch,
    Message,
    Record,
    flip,
    wrap,
)

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "conformance" / "vectors"
_GITHUB = "https://github.com/"


@dataclass(frozen=True)
class Vector:
    """A log, what it shows, and a client's defect that it would have found ("" for none)."""

    name: str
    shows: str
    data: bytes
    defect: str = ""


_THREE = tuple(Record(key=b"k%d" % i, value=b"value %d" % i) for i in range(3))
_PLAIN = Batch(_THREE, base_offset=10).encode()
_MESSAGES = [Message(offset=offset, key=b"k", value=b"value %d" % offset) for offset in range(3)]
_OLD = [Message(magic=0, offset=offset, key=b"k", value=b"value %d" % offset) for offset in range(3)]


def _compressed(name: str, codec: int) -> Vector:
    records = tuple(Record(key=b"k%d" % i, value=b"value " * 20) for i in range(20))
    return Vector(f"v2-{name}", f"records compressed by {name}", Batch(records, codec=codec).encode())


def _record_batches() -> list[Vector]:
    nulls = (Record(), Record(key=b"", value=b""), Record(key=b"k"), Record(value=b"v"))
    headers = ((b"a", b"1"), (b"a", b"2"), (b"null", None), (b"empty", b""))
    data = Batch(_THREE, flags=TRANSACTIONAL, producer_id=7, producer_epoch=0, base_sequence=0)
    return [
        Vector("v2-plain", "three records", _PLAIN),
        Vector(
            "v2-null-and-empty",
            "null and empty are different, of keys and of values",
            Batch(nulls).encode(),
            f"{_GITHUB}platformatic/kafka/issues/216",
        ),
        Vector(
            "v2-headers",
            "headers: a name twice, a null value, an empty one",
            Batch((Record(value=b"v", headers=headers), *_THREE)).encode(),
            f"{_GITHUB}tulios/kafkajs/issues/113",
        ),
        Vector(
            "v2-two-batches",
            "a second batch follows the first one",
            _PLAIN + Batch(_THREE, base_offset=13).encode(),
            f"{_GITHUB}IBM/sarama/pull/1023",
        ),
        Vector(
            "v2-marker",
            "a transaction, its marker, and data after it: a marker is no data",
            data.encode() + marker(3, 7) + Batch(_THREE, base_offset=4).encode(),
            f"{_GITHUB}tulios/kafkajs/issues/403",
        ),
    ]


def _changed_batches() -> list[Vector]:
    """Returns batches that the cleaner or a broker changed, and those with unusual times and offsets."""
    gaps = tuple(Record(key=b"k", value=b"v%d" % i, offset_delta=i) for i in (1, 4))
    times = tuple(Record(value=b"v", timestamp_delta=delta) for delta in (0, -5, 5_000_000_000))
    return [
        Vector(
            "v2-compacted",
            "compaction removed the first and the last records of a batch",
            Batch(gaps, base_offset=20, last_offset_delta=9).encode()
            + Batch(_THREE, base_offset=30).encode(),
            f"{_GITHUB}tulios/kafkajs/issues/562",
        ),
        Vector(
            "v2-empty-batch",
            "compaction removed all records, and the batch stays",
            Batch((), last_offset_delta=4, producer_id=7, base_sequence=0).encode()
            + Batch(_THREE, base_offset=5).encode(),
            f"{_GITHUB}IBM/sarama/issues/2053",
        ),
        Vector(
            "v2-log-append-time",
            "with log append time each record has the batch's max timestamp",
            Batch(times[:2], flags=LOG_APPEND, max_timestamp=1_800_000_000_000).encode(),
            f"{_GITHUB}IBM/sarama/pull/1258",
        ),
        Vector("v2-timestamps", "a timestamp that goes back, and one 58 days later", Batch(times).encode()),
        Vector(
            "v2-delete-horizon",
            "a delete horizon lies in the place of the base timestamp (KIP-534)",
            Batch(_THREE, flags=DELETE_HORIZON).encode(),
        ),
        Vector("v2-high-offset", "an offset above 2^40", Batch(_THREE, base_offset=1 << 41).encode()),
        Vector(
            "v2-other-epoch",
            "the broker changed the leader epoch, which the checksum does not cover",
            flip(_PLAIN, 15, 0x07),
        ),
    ]


def _compressed_batches() -> list[Vector]:
    return [
        *(_compressed(name, codec) for name, codec in (("gzip", GZIP), ("snappy", SNAPPY), ("lz4", LZ4))),
        _compressed("zstd", ZSTD),
        Vector(
            "v2-zstd-two-frames",
            "the payload is two frames of zstd",
            Batch(tuple(_THREE) * 9, codec=ZSTD, style="frames").encode(),
        ),
    ]


def _damaged() -> list[Vector]:
    return [
        Vector(
            "v2-wrong-checksum",
            "one bit of a value was flipped: the batch is refused",
            _PLAIN + flip(Batch(_THREE, base_offset=13).encode(), -3),
            f"{_GITHUB}confluentinc/librdkafka/issues/1056",
        ),
        Vector(
            "v2-wrong-checksum-compressed",
            "one bit of a compressed payload was flipped",
            _PLAIN + flip(Batch(_THREE, base_offset=13, codec=GZIP).encode(), -6),
        ),
        Vector(
            "v2-cut",
            "the last batch is cut, as in an answer of limited size: that is no error",
            _PLAIN + Batch(_THREE, base_offset=13).encode()[:-10],
            f"{_GITHUB}tulios/kafkajs/pull/182",
        ),
        Vector(
            "v2-count-too-large",
            "the header counts more records than there are",
            _PLAIN + Batch(_THREE, base_offset=13, count=5).encode(),
        ),
        Vector(
            "v2-key-length-beyond",
            "the length of a key leads past the end of its batch",
            _PLAIN + Batch((Record(key=b"k", value=b"v", key_length=1000),), base_offset=13).encode(),
        ),
        Vector(
            "v1-wrong-checksum",
            "one bit of a message of magic 1 was flipped",
            _MESSAGES[0].encode() + flip(_MESSAGES[1].encode(), -2),
        ),
    ]


def _messages() -> list[Vector]:
    late = wrap(_MESSAGES, codec=GZIP, log_append_time=1_800_000_000_000)
    historic = wrap(_OLD, codec=LZ4, magic=0, style="historic")
    mixed = _OLD[0].encode() + _MESSAGES[1].encode() + Batch(_THREE, base_offset=2).encode()
    return [
        Vector("v0-plain", "messages of magic 0", b"".join(one.encode() for one in _OLD)),
        Vector(
            "v1-plain",
            "messages of magic 1: lengths are int32 beside varints of magic 2",
            b"".join(one.encode() for one in _MESSAGES),
            f"{_GITHUB}confluentinc/librdkafka/issues/5504",
        ),
        Vector(
            "v1-null-key",
            "a null key and a null value of magic 1",
            Message(value=b"v").encode() + Message(offset=1, key=b"k").encode(),
        ),
        Vector(
            "v0-gzip",
            "a wrapper of magic 0: its inner offsets are absolute",
            wrap(_OLD, codec=GZIP, magic=0).encode(),
            f"{_GITHUB}apache/kafka/pull/3203 (KAFKA-5365)",
        ),
        Vector(
            "v1-gzip",
            "a wrapper of magic 1: inner offsets are relative, and the wrapper has the last one",
            wrap([Message(offset=offset, value=b"v") for offset in (40, 41, 42)], codec=GZIP).encode(),
            f"{_GITHUB}apache/kafka/pull/3203 (KAFKA-5365)",
        ),
        Vector(
            "v1-log-append-time",
            "a wrapper with log append time: its timestamp is that of each inner message",
            late.encode(),
            f"{_GITHUB}IBM/sarama/issues/885",
        ),
        Vector(
            "v0-lz4",
            "LZ4 of Kafka 0.8 and 0.9: the checksum of its header follows another rule",
            historic.encode(),
            f"{_GITHUB}confluentinc/librdkafka/issues/507",
        ),
        Vector("mixed-magic", "all three formats in one log", mixed, f"{_GITHUB}IBM/sarama/pull/1023"),
    ]


def vectors() -> list[Vector]:
    """Returns all vectors, by name."""
    return sorted(
        [*_record_batches(), *_changed_batches(), *_compressed_batches(), *_damaged(), *_messages()],
        key=lambda one: one.name,
    )


def expected(batches: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns what a decoder has to give, by Kafka's reading: data records, and whether it refuses."""
    records: list[dict[str, Any]] = []
    for batch in batches:
        if batch["refused"]:
            return {"records": records, "is_refused": True}
        records += [_record(one) for one in batch["records"] if one["control_type"] is None]
    return {"records": records, "is_refused": False}


def _record(one: dict[str, Any]) -> dict[str, Any]:
    headers = [[name, _base64(value)] for name, value in one["headers"] or ()]
    return {
        "offset": one["offset"],
        "timestamp": one["timestamp_ms"],
        "key": _base64(one["key"]),
        "value": _base64(one["value"]),
        "headers": headers,
    }


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def files() -> dict[str, bytes]:
    """Returns the content of each file in ``vectors/``."""
    made = vectors()
    found: dict[str, bytes] = {}
    for vector, batches in zip(made, read_segments(vector.data for vector in made), strict=True):
        about = {"name": vector.name, "shows": vector.shows, "defect": vector.defect or None}
        text = json.dumps(about | {"judge": PACKAGE} | expected(batches), indent=1)
        found[f"{vector.name}.bin"], found[f"{vector.name}.json"] = vector.data, text.encode() + b"\n"
    return found


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for old in FOLDER.iterdir():
        old.unlink()
    for name, content in files().items():
        (FOLDER / name).write_bytes(content)


if __name__ == "__main__":
    main()
