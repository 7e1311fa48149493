"""Recognizes files that are not Kafka's, by name or first bytes, and says what to do with each."""

from __future__ import annotations

import re
import struct

from kafka_log_lake.udfs.format.file_names import OFFSET_DIGITS

HEAD_BYTES = 512  # of a file: what ``content_kind`` looks at

REDPANDA = "Redpanda segment: it has a format of its own; copy the topic into Kafka with Redpanda running"
COMPRESSED = "compressed file: decompress it first, and give it the name of the segment"
ARCHIVE = "archive: unpack it first"
OSO_BACKUP = "file of an OSO backup (KBAK): restore it into a cluster with kafka-backup"
LOCAL_TIER = "object of remote storage (LocalTieredStorage): --tier reads it"
PLUGIN_TIER = "object of remote storage, written by a plugin: --tier reads it"
CONFLUENT = (
    "object of Confluent's tiered storage: where its .segment is not encrypted, copy it to "
    "<topic>-<partition>/<20 digits>.log"
)
AUTOMQ = "object of AutoMQ: it has a format of its own; read the topic through AutoMQ"
KINDS = (REDPANDA, COMPRESSED, ARCHIVE, OSO_BACKUP, LOCAL_TIER, PLUGIN_TIER, CONFLUENT, AUTOMQ)

_UUID = r"[A-Za-z0-9_-]{22}"
# On a disk <base offset>-<term>-v1.log; in a store <base offset>-<last offset>-<bytes>-<term>-v1.log.<term>
_REDPANDA = re.compile(r"[0-9]+(?:-[0-9]+-[0-9]+)?-[0-9]+-v[0-9]+\.log(?:\.[0-9]+)?(?:\.index|\.tx)?")
# <base offset>_<tier epoch>_v0.<suffix> below 0/<object id>/<topic id>/<partition> (TierObjectStore)
_CONFLUENT = re.compile(
    rf"{OFFSET_DIGITS}_[0-9]+_v[0-9]+\."
    r"(?:segment|offset-index|timestamp-index|transaction-index|producer-state|epoch-state)"
)
_TIER = re.compile(
    rf"{OFFSET_DIGITS}-{_UUID}\.(?:log|indexes|rsm-manifest|index|timeindex|txnindex|snapshot)"
)
_PLUGIN_FOLDER = re.compile(rf"(?:.*/)?[^/]*-{_UUID}/[0-9]+")  # <topic>-<topic id>/<partition>
_AUTOMQ = re.compile(rf"(?:.*/)?_kafka_{_UUID}(?:/.*)?")
_SEGMENT_COMPRESSED = re.compile(rf"{OFFSET_DIGITS}\.log\.(?:gz|gzip|zst|zstd|bz2|xz|lz4|br|snappy)")
_ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.bz2", ".tar.xz", ".tar.lz4", ".zip", ".7z")
_OSO = (".kbs", ".bin", ".bin.zst", ".bin.lz4")
_OSO_NAME = re.compile(r"segment-[0-9]+\.(?:kbs|bin|bin\.zst|bin\.lz4)")
# How the names end that may be of such a file: the others need no look
SUFFIXES: tuple[str, ...] = (
    *(*_ARCHIVES, *_OSO, ".gz", ".gzip", ".zst", ".zstd", ".bz2", ".xz", ".lz4", ".br", ".snappy"),
    *(".indexes", ".rsm-manifest", ".segment"),
)

_SIGNATURES = {
    b"\x1f\x8b": COMPRESSED,  # gzip
    b"\x28\xb5\x2f\xfd": COMPRESSED,  # zstd
    b"\x04\x22\x4d\x18": COMPRESSED,  # lz4
    b"BZh": COMPRESSED,
    b"\xfd7zXZ\0": COMPRESSED,
    b"PK\x03\x04": ARCHIVE,  # zip
    b"KBAK": OSO_BACKUP,
}
_TAR, _TAR_AT = b"ustar", 257
# Redpanda's packed record_batch_header, all little-endian: header crc, size, base offset, type, crc, ...
_REDPANDA_HEADER_BYTES, _REDPANDA_CRC = 61, struct.Struct("<I")


def name_kind(folder: str, name: str) -> str | None:
    """Returns which of KINDS a file is by its name and its folder's path; None for any other."""
    if _AUTOMQ.fullmatch(folder):
        return AUTOMQ
    if _TIER.fullmatch(name):
        return PLUGIN_TIER if _PLUGIN_FOLDER.fullmatch(folder) else LOCAL_TIER
    if _CONFLUENT.fullmatch(name):
        return CONFLUENT
    if _REDPANDA.fullmatch(name):
        return REDPANDA
    if name.endswith(_ARCHIVES):
        return ARCHIVE
    if _SEGMENT_COMPRESSED.fullmatch(name):
        return COMPRESSED
    return OSO_BACKUP if _OSO_NAME.fullmatch(name) else None


def content_kind(head: bytes) -> str | None:
    """Returns which of KINDS a file is by its first HEAD_BYTES bytes; None for any other."""
    for mark, kind in _SIGNATURES.items():
        if head.startswith(mark):
            return kind
    if head[_TAR_AT:].startswith(_TAR):
        return ARCHIVE
    return REDPANDA if _is_redpanda(head) else None


def _is_redpanda(head: bytes) -> bool:
    """Says whether the bytes begin with a Redpanda header: a CRC-32C of the 57 bytes that follow it."""
    if len(head) < _REDPANDA_HEADER_BYTES:
        return False
    import numpy as np

    from kafka_log_lake.udfs.kernels.checksums import crc32c  # compiled kernels, which names do not need

    covered = np.frombuffer(head, dtype=np.uint8, count=_REDPANDA_HEADER_BYTES)[_REDPANDA_CRC.size :]
    stored: int = _REDPANDA_CRC.unpack_from(head)[0]
    return stored == int(crc32c(covered, 0, len(covered), 0))
