"""Parses the manifest that Aiven's tiered storage plugin writes next to each segment in a remote store.

``<20 digits>-<segment id>.rsm-manifest`` is one JSON object (``SegmentManifestV1``). ``chunkIndex`` says how
the segment was cut into chunks, and how many bytes each has in the ``.log`` object; ``segmentIndexes`` where
each index lies in the ``.indexes`` object; ``encryption`` holds the data key, itself encrypted, and the AAD.
"""

from __future__ import annotations

import base64
import io
import json
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import zstandard

from kafka_log_lake.udfs.format.file_names import SEGMENT_SUFFIX
from kafka_log_lake.udfs.format.layout import MAX_OFFSET
from kafka_log_lake.udfs.storage.byte_source import SourceUnreadable
from kafka_log_lake.udfs.storage.tier_keys import INSTALL

MOST_BYTES = 16 << 20  # of a manifest: a GiB in chunks of 64 KiB has 16,384 of them
_MOST_SEGMENT = (1 << 31) - 1  # segment.bytes is an int32
_IV_AND_TAG = 12 + 16
_TOPIC = re.compile("[a-zA-Z0-9._-]{1,249}")  # org.apache.kafka.common.internals.Topic
_PARTITIONS = range(1 << 31)  # an int32


@dataclass(frozen=True)
class Encryption:
    """How chunks are encrypted: AES-256-GCM. data_key: of 32 bytes, encrypted by the key ``key_id``."""

    key_id: str
    data_key: bytes
    aad: bytes


@dataclass(frozen=True)
class Manifest:
    """A manifest.

    chunk_size: bytes of each original chunk but the last. size: bytes of the segment. ends: int64[n], where
    each chunk ends in the object. indexes: name -> (position, bytes) in the ``.indexes`` object.
    """

    chunk_size: int
    size: int
    ends: np.ndarray
    is_compressed: bool
    encryption: Encryption | None
    indexes: Mapping[str, tuple[int, int]]
    segment: Mapping[str, Any]

    @property
    def is_plain(self) -> bool:
        """Says whether the object holds the bytes of the segment as they are."""
        return not self.is_compressed and self.encryption is None

    def stored_sizes(self) -> Iterator[tuple[str, int]]:
        """Yields suffix and bytes of the objects that the manifest describes: ``.log`` and ``.indexes``."""
        yield SEGMENT_SUFFIX, int(self.ends[-1]) if len(self.ends) else 0
        if self.indexes:
            yield ".indexes", max(position + size for position, size in self.indexes.values())

    @property
    def segment_id(self) -> str | None:
        """Returns the id of the segment that the manifest was written for; None where it has none."""
        return self._text("remoteLogSegmentId", "id")

    @property
    def log(self) -> tuple[str, int, str | None] | None:
        """Returns topic, partition and topic id of its log; None where Kafka would not take the names."""
        topic = self._text("remoteLogSegmentId", "topicIdPartition", "topicPartition", "topic")
        partition = self._at("remoteLogSegmentId", "topicIdPartition", "topicPartition", "partition")
        if (
            not topic
            or not _TOPIC.fullmatch(topic)
            or type(partition) is not int
            or partition not in _PARTITIONS
        ):
            return None
        return topic, partition, self._text("remoteLogSegmentId", "topicIdPartition", "topicId")

    @property
    def reach(self) -> tuple[int, tuple[tuple[int, int], ...]] | None:
        """Returns the last offset, and (leader epoch, first offset) in order; None where it lacks them."""
        stored: Mapping[str, Any] = self.segment
        try:
            begins = [(int(epoch), int(start)) for epoch, start in stored["segmentLeaderEpochs"].items()]
            last = int(stored["endOffset"])
        except (AttributeError, KeyError, TypeError, ValueError):
            return None
        is_legal = all(0 <= offset <= MAX_OFFSET for offset in (last, *(start for _, start in begins)))
        return (last, tuple(sorted(begins))) if is_legal else None

    def _at(self, *path: str) -> object:
        """Returns a value of ``remoteLogSegmentMetadata``; None where there is none."""
        value: Any = self.segment
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        return value

    def _text(self, *path: str) -> str | None:
        """Returns a text of ``remoteLogSegmentMetadata``; None where there is none."""
        value = self._at(*path)
        return value if isinstance(value, str) else None


def parse_manifest(text: bytes) -> Manifest:
    """Parses a manifest. Raises a SourceUnreadable where it is cut, or contradicts itself."""
    try:
        stored = json.loads(text)
        index = stored["chunkIndex"]
        chunk_size, size = int(index["originalChunkSize"]), int(index["originalFileSize"])
        if not (0 < chunk_size <= _MOST_SEGMENT and 0 <= size <= _MOST_SEGMENT):
            raise ValueError(f"originalChunkSize {chunk_size}, originalFileSize {size}")
        count = -(-size // chunk_size)
        encryption = stored.get("encryption")
        return Manifest(
            chunk_size,
            size,
            np.cumsum(_sizes(index, count), dtype=np.int64),
            stored["compression"] is True,
            None if encryption is None else _encryption(encryption),
            {
                name: (int(place["position"]), int(place["size"]))
                for name, place in (stored.get("segmentIndexes") or {}).items()
                if place is not None
            },
            segment if isinstance(segment := stored.get("remoteLogSegmentMetadata"), dict) else {},
        )
    except (ValueError, KeyError, TypeError, AttributeError, struct.error, zstandard.ZstdError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise SourceUnreadable(f"its manifest can't be read: {what}") from None


def _encryption(stored: Mapping[str, str]) -> Encryption:
    key_id, colon, data_key = stored["dataKey"].partition(":")
    if not colon:
        raise ValueError("dataKey has no key id")
    return Encryption(key_id, base64.b64decode(data_key, validate=True), base64.b64decode(stored["aad"]))


def _sizes(index: Mapping[str, Any], count: int) -> np.ndarray:
    """Returns int64[count]: the bytes of each chunk in the object."""
    if index["type"] == "fixed":
        sizes = np.full(count, int(index["transformedChunkSize"]), dtype=np.int64)
        sizes[-1:] = int(index["finalTransformedChunkSize"])
    elif index["type"] == "variable":
        sizes = _decoded_sizes(base64.b64decode(index["transformedChunks"], validate=True))
    else:
        raise ValueError(f"chunkIndex of type {index['type']}")
    if (sizes < 0).any():
        raise ValueError("a chunk has a size below 0")
    of_chunks = np.zeros(count, dtype=np.int64)  # of chunks that it does not name: empty
    of_chunks[: len(sizes)] = sizes[:count]
    return of_chunks


def _decoded_sizes(data: bytes) -> np.ndarray:
    """Decodes ``transformedChunks`` (``ChunkSizesBinaryCodec``): a zstd frame of big-endian integers.

    The count (int32); for more than one chunk a base (int32), the bytes of a value (int8), and for each
    chunk but the last its size less the base; the last size (int32).
    """
    plain = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data)).read(MOST_BYTES)
    (count,) = struct.unpack_from(">i", plain)
    if count <= 0:
        return np.zeros(0, dtype=np.int64)
    if count == 1:
        return np.array(struct.unpack_from(">i", plain, 4), dtype=np.int64)
    base, width = struct.unpack_from(">ib", plain, 4)
    if not 0 <= width <= 4 or len(plain) != 9 + (count - 1) * width + 4:
        raise ValueError("transformedChunks has another length than its count says")
    values = np.frombuffer(plain, np.uint8, (count - 1) * width, 9).reshape(count - 1, width).astype(np.int64)
    sizes = np.zeros(count, dtype=np.int64)
    for column in range(width):
        sizes[:-1] = sizes[:-1] << 8 | values[:, column]
    sizes[:-1] += base
    sizes[-1] = struct.unpack_from(">i", plain, len(plain) - 4)[0]
    return sizes


def decrypted(data: bytes | memoryview, data_key: bytes, aad: bytes) -> bytes:
    """Decrypts IV, ciphertext and tag of AES-256-GCM. Raises a ValueError where the tag is wrong."""
    plain = np.empty(max(0, len(data) - _IV_AND_TAG), dtype=np.uint8)
    return plain[: decrypt_into(data, data_key, aad, plain)].tobytes()


def decrypt_into(data: bytes | memoryview, data_key: bytes, aad: bytes, into: np.ndarray) -> int:
    """Decrypts as ``decrypted`` does, into ``into`` (uint8), and returns the bytes.

    Raises a ValueError where the tag is wrong, or ``into`` is smaller than the plain bytes.
    """
    try:
        from cryptography.exceptions import InvalidTag
    except ModuleNotFoundError:
        raise ValueError(INSTALL) from None
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    size = len(data) - _IV_AND_TAG
    if size < 0:
        raise ValueError("it is shorter than an IV and a tag")
    if size > len(into):
        raise ValueError("it is larger than the manifest says")
    try:
        AESGCM(data_key).decrypt_into(data[:12], data[12:], aad, into.data[:size])
    except InvalidTag:
        raise ValueError("its AES-GCM tag is wrong: it, the data key or the AAD was changed") from None
    return size
