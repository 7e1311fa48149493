"""Reads a segment out of the chunks of a remote object, by ranges: decrypted and expanded, chunk by chunk.

A chunk that can't be decoded is zeros here and reported by ``unreadable``, as a failed page of a disk is: the
decoder goes on after it.
"""

from __future__ import annotations

import errno
from collections import OrderedDict
from collections.abc import Callable

import numpy as np
import zstandard

from kafka_log_lake.udfs.format.file_names import SEGMENT_SUFFIX
from kafka_log_lake.udfs.reads import count, is_of_tier
from kafka_log_lake.udfs.storage.byte_source import (
    MANIFEST,
    ByteSource,
    SourceChanged,
    SourceError,
    SourceUnreadable,
    UnreadableRange,
    path_of_uri,
    reason_of,
)
from kafka_log_lake.udfs.storage.regular_file import read_regular
from kafka_log_lake.udfs.storage.store import open_store
from kafka_log_lake.udfs.storage.tier_keys import decrypt_data_key
from kafka_log_lake.udfs.storage.tier_manifest import (
    MOST_BYTES,
    Manifest,
    decrypt_into,
    decrypted,
    parse_manifest,
)

_HELD_BYTES = 8 << 20  # of decoded chunks; two at least


def small_object(uri: str, most: int) -> bytes:
    """Reads a whole object. most: bytes that it may have. Raises a SourceError."""
    path = path_of_uri(uri)
    try:
        if path is not None:
            data = read_regular(path, most)
            count(is_of_tier(path), 1, len(data))
            return data
        system, place = open_store(uri)
        with system.open_input_file(place) as file:
            if file.size() > most:
                raise SourceUnreadable(f"{uri} is larger than {most} bytes")
            data = bytes(file.read())
            count(is_of_tier(uri), 2, len(data))  # its size, its bytes
            return data
    except FileNotFoundError:
        raise SourceChanged(f"{uri.rpartition('/')[2]} is missing") from None
    except OSError as error:
        raise SourceUnreadable(f"{uri} can't be read: {error.strerror or reason_of(error)}") from None


def read_manifest(uri: str) -> Manifest:
    """Reads a manifest by its URI. Raises a SourceError, also where it is of another segment than its
    name.
    """
    manifest = parse_manifest(small_object(uri, MOST_BYTES))
    named = uri.rpartition("/")[2].removesuffix(MANIFEST)[21:]
    if manifest.segment_id not in (None, named):
        raise SourceUnreadable(f"its manifest is that of segment {manifest.segment_id}")
    return manifest


def read_index(manifest_uri: str, name: str) -> bytes:
    """Reads one index out of an ``.indexes`` object, decrypted. name: as ``segmentIndexes`` has it.

    Raises a SourceError; "" of an index that the segment does not have.
    """
    manifest = read_manifest(manifest_uri)
    position, size = manifest.indexes.get(name, (0, 0))
    if not size:
        return b""
    whole = small_object(manifest_uri.removesuffix(MANIFEST) + ".indexes", MOST_BYTES << 2)
    data = whole[position : position + size]
    if len(data) < size:
        raise SourceUnreadable(f"its .indexes object ends in the index {name}")
    if manifest.encryption is None:
        return data
    key = decrypt_data_key(manifest.encryption.data_key, manifest.encryption.key_id)
    try:
        return decrypted(data, key, manifest.encryption.aad)
    except ValueError as error:
        raise SourceUnreadable(f"its index {name}: {error}") from None


class TierObject:
    """The plain bytes of a segment whose ``.log`` object has a manifest, as a ``ByteSource``."""

    def __init__(self, manifest_uri: str, open_plain: Callable[[str], ByteSource]) -> None:
        """Opens by the manifest's URI. open_plain: opens the ``.log`` object as it is. Raises a
        SourceError.
        """
        self._manifest = manifest = read_manifest(manifest_uri)
        self._key = b""
        if manifest.encryption is not None:
            self._key = decrypt_data_key(manifest.encryption.data_key, manifest.encryption.key_id)
        self._object = open_plain(manifest_uri.removesuffix(MANIFEST) + SEGMENT_SUFFIX)
        self._held: OrderedDict[int, np.ndarray] = OrderedDict()
        self._spare: np.ndarray | None = None  # what held the chunk that was dropped last: pages to write to
        # Of a chunk as it lies in the object, and decrypted
        self._stored = self._plain = np.empty(0, dtype=np.uint8)
        self._bad: dict[int, tuple[int, str]] = {}  # number -> its first bad byte, and why

    def size(self) -> int:
        return self._manifest.size

    def read_into(self, position: int, view: np.ndarray) -> int:
        done, size = 0, self._manifest.chunk_size
        wanted = min(len(view), self._manifest.size - position)
        if self._manifest.is_plain and wanted > 0:
            return self._object.read_into(position, view[:wanted])
        while done < wanted:
            number = (position + done) // size
            part = self._chunk(number)[position + done - number * size :][: wanted - done]
            view[done : done + len(part)] = part
            done += len(part)
        return max(done, 0)

    def _chunk(self, number: int) -> np.ndarray:
        """Returns the plain bytes of a chunk, uint8[its size]; zeros where it can't be decoded."""
        held = self._held.get(number)
        if held is None:
            size = min(self._manifest.chunk_size, self._manifest.size - number * self._manifest.chunk_size)
            held = self._spare if self._spare is not None else np.empty(self._manifest.chunk_size, np.uint8)
            self._spare = None
            try:
                good, why = self._decode(number, held[:size]), "it is shorter than the manifest says"
            except ValueError as error:
                good, why = 0, str(error)
            if good < size:
                self._bad[number] = good, f"chunk {number} of the object: {why}"
                held[good:size] = 0
            self._held[number] = held
            while len(self._held) > max(2, _HELD_BYTES // self._manifest.chunk_size):
                self._spare = self._held.popitem(last=False)[1]
        return held

    def _decode(self, number: int, into: np.ndarray) -> int:
        """Decrypts and expands a chunk into ``into``, uint8[its plain size]. Returns the bytes that it gave.

        Raises a ValueError that says why it gave none.
        """
        begin, end = int(self._manifest.ends[number - 1]) if number else 0, int(self._manifest.ends[number])
        if len(self._stored) < end - begin:
            self._stored = np.empty(int(np.diff(self._manifest.ends, prepend=0).max()), dtype=np.uint8)
        stored = self._stored[: end - begin]
        try:
            got = self._object.read_into(begin, stored)
        except SourceChanged:
            got = 0
        if got < len(stored):
            raise ValueError("the object ends before it, or in it")
        if self._object.unreadable(begin, end):
            raise ValueError("the storage could not read it")
        of = self._manifest.encryption
        if of is None:
            return _expand(stored.data, into)  # else the object is plain
        if not self._manifest.is_compressed:
            return decrypt_into(stored.data, self._key, of.aad, into)
        if len(self._plain) < len(stored):
            self._plain = np.empty(len(self._stored), dtype=np.uint8)
        size = decrypt_into(stored.data, self._key, of.aad, self._plain)
        return _expand(self._plain.data[:size], into)

    def unreadable(self, position: int, end: int) -> list[UnreadableRange]:
        if self._manifest.is_plain:
            return self._object.unreadable(position, end)
        ranges, size = [], self._manifest.chunk_size
        for number, (good, why) in sorted(self._bad.items()):
            first, last = number * size + good, min((number + 1) * size, self._manifest.size)
            if first < end and last > position:
                ranges.append(UnreadableRange(first, last - first, errno.EBADMSG, why))
        return ranges

    def close(self) -> None:
        self._held.clear()
        self._object.close()


def _expand(data: bytes | memoryview, into: np.ndarray) -> int:
    """Expands one zstd frame into ``into``, and no more of it than that holds. Returns the bytes."""
    reader = zstandard.ZstdDecompressor().stream_reader(data, read_size=max(1, len(data)))
    try:
        return int(reader.readinto(into.data))
    except zstandard.ZstdError as error:
        raise ValueError(f"it can't be expanded: {error}") from None


def open_tier_object(uri: str, open_plain: Callable[[str], ByteSource]) -> TierObject:
    """Opens the segment of a manifest; any error of the object as a SourceError that names it."""
    try:
        return TierObject(uri, open_plain)
    except SourceError as error:
        name = uri.rpartition("/")[2].removesuffix(MANIFEST) + SEGMENT_SUFFIX
        raise type(error)(f"{name}: {error}") from None
