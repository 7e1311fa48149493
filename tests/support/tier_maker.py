"""Writes the objects of a segment as Aiven's plugin does, under the settings that a test chooses."""

from __future__ import annotations

import base64
import json
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard

# Suffix of LocalTieredStorage -> name in segmentIndexes
_INDEXES = {
    ".index": "offset",
    ".timeindex": "timestamp",
    ".snapshot": "producerSnapshot",
    ".leader_epoch_checkpoint": "leaderEpoch",
    ".txnindex": "transaction",
}
_AAD = b"additional data"


@dataclass(frozen=True)
class Layout:
    """Settings of the plugin, and of the ways in which others copied its objects.

    topic: the name that the topic gets. folder: with {topic}, {partition} and {topic_id}. keys: ids of the
    RSA keys that encrypt data keys, in turn. chunk: bytes of an original chunk. without: fields that the
    manifest lacks. is_split: an object for each index, as before 1.0. has_metadata: whether
    ``__remote_log_metadata`` is on the disk.
    """

    topic: str = "small"
    folder: str = "{topic}-{topic_id}/{partition}"
    is_compressed: bool = True
    keys: tuple[str, ...] = ()
    chunk: int = 1000
    without: tuple[str, ...] = ()
    is_split: bool = False
    has_metadata: bool = True


def write_tier(source: Path, target: Path, layout: Layout, pem: dict[str, bytes]) -> None:
    """Writes the objects of a tier of LocalTieredStorage anew. pem: private keys by id."""
    for number, path in enumerate(sorted(source.rglob("*.log"))):
        _, partition, topic_id = path.parent.name.split("-", 2)
        folder = target / layout.folder.format(topic=layout.topic, partition=partition, topic_id=topic_id)
        folder.mkdir(parents=True, exist_ok=True)
        plain = path.read_bytes()
        key_id = layout.keys[number % len(layout.keys)] if layout.keys else None
        data_key = os.urandom(32) if key_id else None
        chunks = [
            _transformed(plain[at : at + layout.chunk], layout.is_compressed, data_key)
            for at in range(0, len(plain), layout.chunk)
        ]
        (folder / path.name).write_bytes(b"".join(chunks))
        index = {"originalChunkSize": layout.chunk, "originalFileSize": len(plain)}
        index |= _chunk_index([len(chunk) for chunk in chunks], layout.is_compressed)
        manifest: dict[str, Any] = {"version": "1", "chunkIndex": index}
        manifest |= _indexes(path, folder, layout, data_key)
        manifest["compression"] = layout.is_compressed
        if key_id and data_key:
            manifest["encryption"] = {
                "dataKey": f"{key_id}:{_base64(_encrypted_key(data_key, pem[key_id]))}",
                "aad": _base64(_AAD),
            }
        manifest["remoteLogSegmentMetadata"] = _metadata(path, layout.topic, int(partition), topic_id)
        for name in layout.without:
            del manifest[name]
        (folder / path.name).with_suffix(".rsm-manifest").write_text(json.dumps(manifest))


def _transformed(data: bytes, is_compressed: bool, data_key: bytes | None) -> bytes:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    if is_compressed:
        data = zstandard.compress(data)
    if data_key is None:
        return data
    iv = os.urandom(12)
    return iv + AESGCM(data_key).encrypt(iv, data, _AAD)


def _chunk_index(sizes: list[int], is_compressed: bool) -> dict[str, Any]:
    if not is_compressed:
        first, last = sizes[0], sizes[-1]
        return {"type": "fixed", "transformedChunkSize": first, "finalTransformedChunkSize": last}
    encoded = struct.pack(">i", len(sizes))
    if len(sizes) > 1:
        base = min(sizes[:-1])
        encoded += struct.pack(">ib", base, 2) + b"".join(
            struct.pack(">H", size - base) for size in sizes[:-1]
        )
    encoded += struct.pack(">i", sizes[-1])
    return {"type": "variable", "transformedChunks": _base64(zstandard.compress(encoded))}


def _indexes(path: Path, folder: Path, layout: Layout, data_key: bytes | None) -> dict[str, Any]:
    """Writes the indexes, and returns their field of the manifest; none where each is an object."""
    stored, places = b"", dict[str, Any]()
    for suffix, name in _INDEXES.items():
        own = path.with_suffix(suffix)
        data = own.read_bytes() if own.exists() else b""
        data = _transformed(data, False, data_key) if data else b""
        if layout.is_split and own.exists():
            (folder / path.name).with_suffix(suffix.replace("_", "-")).write_bytes(data)
        has_none = name == "transaction" and not data
        places[name] = None if has_none else {"position": len(stored), "size": len(data)}
        stored += data
    if layout.is_split:
        return {}
    (folder / path.name).with_suffix(".indexes").write_bytes(stored)
    return {"segmentIndexes": places}


def _metadata(path: Path, topic: str, partition: int, topic_id: str) -> dict[str, Any]:
    """Returns ``remoteLogSegmentMetadata``, by the content of a segment."""
    plain, at, last, epochs = path.read_bytes(), 0, 0, dict[str, int]()
    while at < len(plain):
        base, length, epoch = struct.unpack_from(">qii", plain, at)
        last = base + int(struct.unpack_from(">i", plain, at + 23)[0])
        epochs.setdefault(str(epoch), base)
        at += 12 + length
    place = {"topicId": topic_id, "topicPartition": {"topic": topic, "partition": partition}}
    return {
        "remoteLogSegmentId": {"topicIdPartition": place, "id": path.stem[21:]},
        "startOffset": int(path.name[:20]),
        "endOffset": last,
        "segmentLeaderEpochs": epochs,
    }


def _encrypted_key(data_key: bytes, pem: bytes) -> bytes:
    from Crypto.Cipher import PKCS1_OAEP
    from Crypto.Hash import SHA3_512
    from Crypto.PublicKey import RSA

    return PKCS1_OAEP.new(RSA.import_key(pem).public_key(), hashAlgo=SHA3_512).encrypt(data_key)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
