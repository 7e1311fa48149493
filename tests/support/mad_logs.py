"""Logs whose stored values are mad, one field of one batch each: what bits, disks and clients can leave.

All of them are of topics, groups, ids and settings whose names begin with ``mad``, so that a test can tell
their rows from those of the logs next to them. A checksum covers what the format lets it cover, and is right.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.support import segment_maker as make
from tests.support.logs import marker, put
from tests.support.segment_maker import Batch, Message, Record

NOW = 1_700_000_000_000
INT16 = (-(2**15), -2, -1, 0, 2**15 - 1)
INT32 = (-(2**31), -2, -1, 0, 2**31 - 1)
INT64 = (-(2**63), -(2**62), -2, -1, 0, 2**53 + 1, 2**61, 2**62, 2**62 + 7, 2**63 - 2, 2**63 - 1)
FIELDS: dict[str, tuple[Any, ...]] = {
    "base_offset": INT64,
    "leader_epoch": INT32,
    "last_offset_delta": INT32,
    "base_timestamp": INT64,
    "max_timestamp": INT64,
    "producer_id": INT64,
    "producer_epoch": INT16,
    "base_sequence": INT32,
    "count": INT32,
    "crc": (0, 2**32 - 1),
}
KINDS = (0, make.LOG_APPEND, make.TRANSACTIONAL, make.DELETE_HORIZON, 0x7F78)  # flags of batches
CHECKPOINT_FILES = {
    "recovery-point-offset-checkpoint": 2**63 - 1,
    "log-start-offset-checkpoint": -(2**63),
    "replication-offset-checkpoint": 2**63 - 1,
}


def _sound(base: int, **values: object) -> Batch:
    records = (Record(key=b"k", value=b"v"), Record(key=None, value=None))
    own = {"producer_id": 7, "producer_epoch": 0, "base_sequence": base % 2**31, "base_offset": base}
    return Batch(records, **(own | values))  # type: ignore[arg-type]


def mad_segments() -> Iterator[list[bytes]]:
    """The batches of one segment after the other; each begins at offset 0."""
    for flags in KINDS:
        for number in range(len(INT64)):
            batches = [_sound(0, flags=flags)]
            for at, (name, values) in enumerate(FIELDS.items(), 1):
                one = _sound(4 * at - 2, flags=flags)
                mad: dict[str, Any] = {name: values[number % len(values)]}
                batches += [replace(one, **mad), _sound(4 * at, flags=flags)]
            yield [one.encode() for one in batches]
    for value in INT64:
        delta = Record(key=b"k", value=b"v", timestamp_delta=value, offset_delta=2**31 - 1)
        inner = [Message(offset=8), Message(offset=9, timestamp=value)]
        outer = make.wrap(inner, codec=make.GZIP, outer_offset=value, log_append_time=value)
        yield [
            marker(0, value, epoch=-(2**15)),
            _sound(1).encode(),
            marker(value, 7),
            Batch((delta,), base_offset=4, base_timestamp=value, max_timestamp=value).encode(),
            _sound(value, base_sequence=0).encode(),
        ]
        yield [Message(offset=value, timestamp=value).encode(), outer.encode(), Message(offset=10).encode()]


def write_mad_logs(root: Path) -> None:
    """Log directories: topics ``mad``, ``mad-late`` with mad files, and mad records of internal topics."""
    for number, batches in enumerate(mad_segments()):
        put(root / f"mad.{number % 7}-{2**31 - 1 - number}", 0, *batches)
    late = root / "mad-late-2147483647"
    put(late, 0, _sound(0).encode(), _sound(2, flags=make.TRANSACTIONAL, max_timestamp=-1).encode())
    put(late, 2**62, _sound(2**62).encode(), b"\xff" * 40)
    put(late, 2**63 - 1, _sound(2**63 - 1).encode(), b"\xff" * 40)
    for at, path in zip((-(2**33), 1, 2**33), sorted(late.iterdir()), strict=True):
        os.utime(path, (at, at))
    for file, value in CHECKPOINT_FILES.items():
        lines = [f"mad.0 {2**31 - 1} {value}", f"mad-late {2**31 - 1} {value}"]
        (root / file).write_text("\n".join(["0", str(len(lines)), *lines, ""]))
    put(root / "__consumer_offsets-49", 0, Batch(tuple(_commits())).encode())
    put(root / "__transaction_state-49", 0, Batch(tuple(_states())).encode())


def write_mad_settings(root: Path) -> None:
    """A metadata log that has mad settings of the mad topics."""
    values = ("9" * 30, "-1", "", "compact", str(2**63 - 1), str(-(2**63)))
    settings = ("retention.ms", "retention.bytes", "min.compaction.lag.ms", "cleanup.policy")
    records = [
        Record(key=None, value=_setting(f"mad.{at}".encode(), setting.encode(), value.encode()))
        for at, value in enumerate(values)
        for setting in settings
    ]
    put(root / "__cluster_metadata-0", 0, Batch(records).encode())


def _text(value: bytes) -> bytes:
    return struct.pack(">h", len(value)) + value


def _compact(value: bytes) -> bytes:
    return bytes([len(value) + 1]) + value


def _setting(topic: bytes, name: bytes, value: bytes) -> bytes:
    """A ConfigRecord of a topic: frame version 1, API key 4, version 0."""
    return b"\1\4\0\2" + _compact(topic) + _compact(name) + _compact(value) + b"\0"


def _commits() -> Iterator[Record]:
    """Offset commits of mad groups, of version 3."""
    for at, value in enumerate(INT64):
        for topic, partition in ((b"mad.0", 2**31 - 1), (b"mad-late", 2**31 - 1), (b"mad", -1)):
            key = struct.pack(">h", 1) + _text(b"mad%d" % at) + _text(topic) + struct.pack(">i", partition)
            commit = struct.pack(">hqi", 3, value, INT32[at % 5]) + _text(b"") + struct.pack(">q", value)
            yield Record(key=key, value=commit, timestamp_delta=at)


def _states() -> Iterator[Record]:
    """Transaction states of mad ids: all of them say that a transaction is open."""
    for at, value in enumerate(INT64):
        body = struct.pack(">hqhib", 0, value, INT16[at % 5], INT32[at % 5], at % 8)
        body += struct.pack(">i", 1) + _text(b"mad.0") + struct.pack(">ii", 1, 2**31 - 1)
        yield Record(
            key=struct.pack(">h", 0) + _text(b"mad%d" % at), value=body + struct.pack(">qq", value, value)
        )
