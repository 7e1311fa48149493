"""Finds batches in bytes: where each begins, what its header says, whether its checksum is right.

Framing reads headers and checksums and nothing else: it never decompresses, never looks at a record.
A batch is framed where its magic is 0, 1 or 2 and its length is legal (``batch_size``); the magic decides the
rest, so one segment may mix all three.
"""

from __future__ import annotations

import numpy as np

from kafka_log_lake.udfs.format import faults
from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.kernels.checksums import crc32, crc32c
from kafka_log_lake.udfs.kernels.jit import inlined, int64, kernel, load_be16, load_be32, load_be64

# One row a batch. Positions: byte in the segment (position), or in the window (at, payload_at).
BATCH = np.dtype(
    [
        ("position", "i8"),
        ("at", "i8"),
        ("size", "i8"),
        ("base_offset", "i8"),
        ("last_offset", "i8"),
        ("base_timestamp", "i8"),
        ("max_timestamp", "i8"),
        ("producer_id", "i8"),
        ("crc_stored", "i8"),
        ("crc_computed", "i8"),
        ("payload_at", "i8"),  # of the compressed or plain payload, in the window; -1 none
        ("payload_size", "i8"),
        ("data_at", "i8"),  # of the expanded payload, in the window or in the scratch buffer
        ("data_size", "i8"),
        ("key_bytes", "i8"),
        ("value_bytes", "i8"),
        ("header_bytes", "i8"),
        ("stopped_at", "i8"),  # what is at fault, in the buffer of the data
        ("stopped_in", "i8"),  # the record or message that it is part of
        ("fault_at", "i8"),  # these three are filled in by format.explain, for format.faults
        ("fault_expected", "i8"),
        ("fault_found", "i8"),
        ("attributes", "i4"),
        ("leader_epoch", "i4"),
        ("base_sequence", "i4"),
        ("last_sequence", "i4"),
        ("count", "i4"),  # recordsCount; -1 for magic 0 and 1
        ("last_offset_delta", "i4"),
        ("record_count", "i4"),
        ("coordinator_epoch", "i4"),
        ("stopped_after", "i4"),  # records before the one at fault
        ("marks", "i4"),  # faults.SUSPECT_TEXTS
        ("fault", "i2"),  # faults.FAULTS
        ("producer_epoch", "i2"),
        ("control_type", "i2"),  # of the first record; -1 none
        ("magic", "i1"),
        ("codec", "i1"),
        ("timestamp_type", "i1"),
        ("expanded", "i1"),  # 1: the data lie in the scratch buffer
    ],
    align=True,
)

# The base offset of a wrapper until its first inner message is read; of other batches an offset like any
UNKNOWN_OFFSET = -(1 << 63)

# Why a scan stopped
STOPPED, FULL, NEED_MORE, NO_BATCH, BAD_CRC = range(5)

# Why no batch starts at a position
TOO_SHORT, UNKNOWN_MAGIC, ILLEGAL_LENGTH = -1, -2, -3


def base_unknown(batches: np.ndarray) -> np.ndarray:
    """Returns bool[n]: which batches are wrappers of which no inner message was read."""
    wrapper = (batches["magic"] < f.MAGIC_V2) & (batches["codec"] != f.CODEC_NONE)
    return wrapper & (batches["base_offset"] == UNKNOWN_OFFSET) & (batches["record_count"] == 0)


@kernel
def batch_size(buf: np.ndarray, at: int, end: int) -> int:
    """Returns the bytes on disk of the batch at ``buf[at]`` (uint8), or a negative code where none starts."""
    if at + f.HEADER_UP_TO_MAGIC > end:
        return TOO_SHORT
    size = load_be32(buf, at + f.LENGTH_POS) + f.LOG_OVERHEAD
    magic = buf[at + f.MAGIC_POS]
    if magic == f.MAGIC_V2:
        return size if size >= f.V2_HEADER_SIZE else ILLEGAL_LENGTH
    if magic == f.MAGIC_V1:
        return size if size >= f.V1_MIN_SIZE else ILLEGAL_LENGTH
    if magic == f.MAGIC_V0:
        return size if size >= f.V0_MIN_SIZE else ILLEGAL_LENGTH
    return UNKNOWN_MAGIC


@inlined
def increment_sequence(sequence: int, increment: int) -> int:
    """Returns Kafka's ``incrementSequence``: after 2^31-1 comes 0; int32 arithmetic throughout."""
    room = int64(np.int32(0x7FFFFFFF - increment))
    if sequence > room:
        return int64(np.int32(increment - (0x7FFFFFFF - sequence) - 1))
    return int64(np.int32(sequence + increment))


@kernel
def _clear(e: np.void) -> None:
    e["producer_id"] = f.NO_PRODUCER_ID
    e["producer_epoch"] = -1
    e["base_sequence"] = f.NO_SEQUENCE
    e["last_sequence"] = f.NO_SEQUENCE
    e["leader_epoch"] = -1
    e["count"] = -1
    e["last_offset_delta"] = 0
    e["record_count"] = 0
    e["control_type"] = f.NO_CONTROL
    e["coordinator_epoch"] = -1
    e["key_bytes"] = 0
    e["value_bytes"] = 0
    e["header_bytes"] = 0
    e["marks"] = 0
    e["fault"] = faults.NO_FAULT
    e["stopped_at"] = 0
    e["stopped_in"] = 0
    e["stopped_after"] = 0
    e["fault_at"] = 0
    e["fault_expected"] = 0
    e["fault_found"] = 0
    e["expanded"] = 0


@kernel
def set_fault(e: np.void, code: int, at: int, record_at: int) -> None:
    """Notes in the batch what is wrong and where: at ``at``, in the record or message at ``record_at``.

    Both are positions in the buffer where the batch's data lie. ``format.explain`` finds out the rest.
    """
    e["fault"] = code
    e["stopped_at"] = at
    e["stopped_in"] = record_at


@kernel
def _read_v2(buf: np.ndarray, at: int, e: np.void) -> None:
    attributes = load_be16(buf, at + f.V2_ATTRIBUTES_POS) & 0xFFFF
    base_offset = load_be64(buf, at + f.OFFSET_POS)
    delta = load_be32(buf, at + f.LAST_OFFSET_DELTA_POS)
    sequence = load_be32(buf, at + f.BASE_SEQUENCE_POS)
    e["attributes"] = attributes
    e["codec"] = attributes & f.CODEC_MASK
    e["timestamp_type"] = f.LOG_APPEND_TIME if attributes & f.TIMESTAMP_TYPE_MASK else f.CREATE_TIME
    e["base_offset"] = base_offset
    e["last_offset_delta"] = delta
    e["last_offset"] = base_offset + delta
    e["base_timestamp"] = load_be64(buf, at + f.BASE_TIMESTAMP_POS)
    e["max_timestamp"] = load_be64(buf, at + f.MAX_TIMESTAMP_POS)
    e["leader_epoch"] = load_be32(buf, at + f.LEADER_EPOCH_POS)
    e["producer_id"] = load_be64(buf, at + f.PRODUCER_ID_POS)
    e["producer_epoch"] = load_be16(buf, at + f.PRODUCER_EPOCH_POS)
    e["base_sequence"] = sequence
    if sequence != f.NO_SEQUENCE:
        e["last_sequence"] = increment_sequence(sequence, delta)
    e["count"] = load_be32(buf, at + f.RECORDS_COUNT_POS)
    e["crc_stored"] = load_be32(buf, at + f.V2_CRC_POS) & 0xFFFFFFFF
    e["payload_at"] = at + f.V2_HEADER_SIZE
    e["payload_size"] = e["size"] - f.V2_HEADER_SIZE
    if attributes & f.V2_UNUSED_MASK:
        e["marks"] |= faults.UNUSED_ATTRIBUTES
    if e["codec"] != f.CODEC_NONE and e["payload_size"] == 0:
        e["marks"] |= faults.EMPTY_STREAM
    if delta < 0:
        e["marks"] |= faults.LAST_DELTA_NEGATIVE


@kernel
def _read_legacy(buf: np.ndarray, at: int, magic: int, e: np.void) -> None:
    attributes = int64(buf[at + f.LEGACY_ATTRIBUTES_POS])
    offset = load_be64(buf, at + f.OFFSET_POS)
    e["attributes"] = attributes
    e["codec"] = attributes & f.CODEC_MASK
    e["base_offset"] = offset if e["codec"] == f.CODEC_NONE else UNKNOWN_OFFSET
    e["last_offset"] = offset
    timestamp = f.NO_TIMESTAMP
    unused = attributes & f.V0_UNUSED_MASK
    e["timestamp_type"] = f.NO_TIMESTAMP_TYPE
    if magic == f.MAGIC_V1:
        timestamp = load_be64(buf, at + f.V1_TIMESTAMP_POS)
        unused = attributes & f.V1_UNUSED_MASK
        e["timestamp_type"] = f.LOG_APPEND_TIME if attributes & f.TIMESTAMP_TYPE_MASK else f.CREATE_TIME
    e["base_timestamp"] = timestamp
    e["max_timestamp"] = timestamp
    e["crc_stored"] = load_be32(buf, at + f.LEGACY_CRC_POS) & 0xFFFFFFFF
    e["payload_at"] = at
    e["payload_size"] = e["size"]
    if unused:
        e["marks"] |= faults.UNUSED_ATTRIBUTES


@kernel
def read_header(buf: np.ndarray, at: int, size: int, position: int, e: np.void) -> None:
    """Fills the batch row ``e`` (BATCH) from the header at ``buf[at]``; its whole header is there.

    ``position``: of the batch in the segment. ``crc_computed`` is 0 until the caller computes it.
    """
    _clear(e)
    magic = int64(buf[at + f.MAGIC_POS])
    e["position"] = position
    e["at"] = at
    e["size"] = size
    e["magic"] = magic
    e["crc_computed"] = 0
    if magic == f.MAGIC_V2:
        _read_v2(buf, at, e)
    else:
        _read_legacy(buf, at, magic, e)
    e["data_at"] = e["payload_at"]
    e["data_size"] = e["payload_size"]


@kernel
def checksum(buf: np.ndarray, at: int, size: int) -> int:
    """Returns the checksum of the whole batch at ``buf[at:at+size]``: CRC-32C for magic 2, else CRC-32."""
    if buf[at + f.MAGIC_POS] == f.MAGIC_V2:
        return crc32c(buf, at + f.V2_ATTRIBUTES_POS, at + size, 0)
    return crc32(buf, at + f.MAGIC_POS, at + size, 0)


@kernel
def locate_wrapped(buf: np.ndarray, e: np.void) -> None:
    """Finds the value of a V0/V1 wrapper: its payload. A bound that is broken is noted as a fault."""
    at = e["at"]
    end = at + e["size"]
    length_at = at + (f.V1_KEY_LENGTH_POS if e["magic"] == f.MAGIC_V1 else f.V0_KEY_LENGTH_POS)
    key_size = load_be32(buf, length_at)
    value_at = length_at + 4 + max(key_size, 0)
    if value_at + 4 > end:
        set_fault(e, faults.KEY_BEYOND, length_at, at)
        return
    value_size = load_be32(buf, value_at)
    if value_size < 0:
        e["payload_size"] = 0
        e["data_size"] = 0
        set_fault(e, faults.WRAPPER_NULL_VALUE, value_at, at)
        return
    if value_size > end - value_at - 4:
        set_fault(e, faults.VALUE_BEYOND, value_at, at)
        return
    if key_size < -1:
        e["marks"] |= faults.LENGTH_BELOW_NULL
    if value_at + 4 + value_size < end:
        e["marks"] |= faults.MESSAGE_SLACK
    e["payload_at"] = value_at + 4
    e["payload_size"] = value_size


@kernel
def is_sound(buf: np.ndarray, at: int, size: int) -> bool:
    """Tells whether the checksum of the batch ``buf[at:at+size]`` is right; its whole header is there."""
    crc_at = at + (f.V2_CRC_POS if buf[at + f.MAGIC_POS] == f.MAGIC_V2 else f.LEGACY_CRC_POS)
    return checksum(buf, at, size) == load_be32(buf, crc_at) & 0xFFFFFFFF


@kernel
def follow_to_sound(buf: np.ndarray, at: int, size: int) -> tuple[int, int]:
    """Follows headers from ``buf[at]`` to the first batch whose checksum is right.

    Returns (its place, STOPPED); or (place, why): NEED_MORE where the batch there does not lie in
    ``buf[:size]`` as a whole, NO_BATCH where none begins there.
    """
    while True:
        length = batch_size(buf, at, size)
        if length == TOO_SHORT or length > size - at:
            return at, NEED_MORE
        if length < 0:
            return at, NO_BATCH
        if is_sound(buf, at, length):
            return at, STOPPED
        at += length


@kernel
def last_whole(buf: np.ndarray, size: int, sound_alone: bool) -> tuple[int, int]:
    """Returns where the last whole batch in ``buf[:size]`` (uint8) ends and begins, by length fields.

    It returns (0, 0) where there is none. sound_alone: a batch counts only if its checksum is right.
    """
    at = end = begin = 0
    while True:
        length = batch_size(buf, at, size)
        if length <= 0 or length > size - at:
            return end, begin
        if not sound_alone or is_sound(buf, at, length):
            end, begin = at + length, at
        at += length


@kernel
def scan_batches(
    buf: np.ndarray, size: int, base: int, stop: int, trusted: int, batches: np.ndarray
) -> tuple[int, int, int, int]:
    """Frames the batches in ``buf[0:size]`` that begin below ``stop``, and verifies their checksums.

    ``buf``: uint8[n]; ``base``: position of ``buf[0]`` in the segment; ``batches``: BATCH[m], filled. A batch
    with a wrong checksum keeps its length, and is noted as a fault, where headers lead from its end to a
    sound batch in ``buf``, or it ends at or before ``trusted``, a position up to which they are known to.
    Returns (batches, bytes of ``buf`` they take, why the scan ended, how far headers are known to lead on).
    For BAD_CRC the row after the batches holds the header of the one whose checksum is wrong.
    """
    at = 0
    k = 0
    while True:
        if base + at >= stop:
            return k, at, STOPPED, trusted
        if k == len(batches):
            return k, at, FULL, trusted
        length = batch_size(buf, at, size)
        if length == TOO_SHORT or (length > 0 and length > size - at):
            return k, at, NEED_MORE, trusted
        if length < 0:
            return k, at, NO_BATCH, trusted
        e = batches[k]
        read_header(buf, at, length, base + at, e)
        computed = checksum(buf, at, length)
        e["crc_computed"] = computed
        if computed != e["crc_stored"]:
            if base + at + length > trusted:
                sound, why = follow_to_sound(buf, at + length, size)
                if why != STOPPED:
                    return k, at, BAD_CRC, trusted
                trusted = base + sound
            set_fault(e, faults.CRC_MISMATCH, at, at)
            e["data_size"] = 0
        elif e["magic"] != f.MAGIC_V2 and e["codec"] != f.CODEC_NONE:
            locate_wrapped(buf, e)
        at += length
        k += 1


# Totals of batches in their order, as ``sum_up`` counts them
SUMS = np.dtype(
    [
        ("sound_bytes", "i8"),
        ("faulty", "i8"),
        ("regressions", "i8"),  # how often a base offset is not above the last offset before it
        ("first_offset", "i8"),
        ("last_offset", "i8"),
        ("sure_offset", "i8"),  # the last offset; the lower of the last two if they do not follow each other
        ("transactional", "i8"),  # sound batches of transactions, markers among them
        ("counted", "i8"),  # batches whose offsets are looked at: all but those with a wrong checksum
    ]
)


@kernel
def sum_up(batches: np.ndarray, sums: np.ndarray) -> None:
    """Computes totals of batches (BATCH[n]) in their order into ``sums`` (SUMS[1]), which is overwritten.

    Of a wrapper of which no inner message was read the last offset stands for the base offset.
    """
    sound_bytes, faulty, regressions, transactional, counted = 0, 0, 0, 0, 0
    first = last = sure = 0
    for k in range(len(batches)):
        e = batches[k]
        if e["fault"]:
            faulty += 1
            if e["fault"] == faults.CRC_MISMATCH:
                continue
        else:
            sound_bytes += e["size"]
            transactional += e["magic"] == f.MAGIC_V2 and e["attributes"] & f.TRANSACTIONAL_MASK != 0
        wrapper = e["magic"] < f.MAGIC_V2 and e["codec"] != f.CODEC_NONE
        unread = wrapper and e["base_offset"] == UNKNOWN_OFFSET and e["record_count"] == 0
        base = e["last_offset"] if unread else e["base_offset"]
        if counted == 0:
            first = base
        elif base <= last:
            regressions += 1
        follows = counted == 0 or base - 1 == last
        sure = e["last_offset"] if follows else min(last, e["last_offset"])
        counted += 1
        last = e["last_offset"]
    total = sums[0]
    total["sound_bytes"], total["faulty"], total["regressions"] = sound_bytes, faulty, regressions
    total["first_offset"], total["last_offset"], total["sure_offset"] = first, last, sure
    total["transactional"], total["counted"] = transactional, counted
