"""A segment decoder that takes what Kafka's tool takes: batches follow each other by their lengths alone.

A wrong checksum is no fault, and the segment ends where ``FileLogInputStream`` ends it or refuses to go on.
"""

from __future__ import annotations

import numpy as np

from kafka_log_lake.udfs.decoder.decoded import Group
from kafka_log_lake.udfs.decoder.kafka_reader import Refused
from kafka_log_lake.udfs.decoder.segment_decoder import SegmentDecoder
from kafka_log_lake.udfs.format import faults
from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.kernels.framing import BATCH, checksum, locate_wrapped, read_header

LEAST_LENGTH = 14
_ALWAYS = 1 << 62


class LenientDecoder(SegmentDecoder):
    """Decodes a segment as Kafka's tool reads it. Raises Refused where the tool fails.

    Batches whose magic is not 0 to 2, or that are too small for it, come with a fault and without records.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._headers.trust(_ALWAYS)  # so a length is believed whatever the checksum

    def _sound_batches(self, batches: np.ndarray):  # type: ignore[no-untyped-def]
        for k in np.flatnonzero(batches["fault"] == faults.CRC_MISMATCH):
            e = batches[k]
            e["fault"], e["data_size"] = faults.NO_FAULT, e["payload_size"]
            if e["magic"] != f.MAGIC_V2 and e["codec"] != f.CODEC_NONE:
                locate_wrapped(self._window, e)
        yield from super()._sound_batches(batches)

    def _needs_more(self, position: int) -> bool:
        size, room = self._headers.size_at(position), self.range.length - position
        if size > room:
            return False
        if size > len(self._buf):
            self._buf, self._filled = np.empty(size, dtype=np.uint8), (0, 0)
        return len(self._window) < min(len(self._buf), room)

    def _damaged(self, position: int) -> tuple[int, Group]:
        """Returns where decoding continues, and a group: a tail, or a batch that Kafka's tool alone takes."""
        room = self.range.length - position
        if room <= f.HEADER_UP_TO_MAGIC:
            return self._tail(position, "torn")
        head = self._header(position)
        length = int.from_bytes(head[f.LENGTH_POS : f.LOG_OVERHEAD].tobytes(), "big", signed=True)
        if length < LEAST_LENGTH:
            raise Refused(f"a length of {length}, and the smallest is {LEAST_LENGTH}, at position {position}")
        size = f.LOG_OVERHEAD + length
        if size > room:
            return self._tail(position, "torn")
        batch = self._odd_batch(position, size)
        self.totals.last_position = position
        return position + size, Group(batch, None, [])

    def _odd_batch(self, position: int, size: int) -> np.ndarray:
        """Returns BATCH[1], the row of a batch of another magic, or too small for its own."""
        content = np.zeros(max(size, f.V2_HEADER_SIZE), dtype=np.uint8)
        got = self.source.read_into(position, content[: min(len(content), self.range.length - position)])
        magic = int(content[f.MAGIC_POS : f.HEADER_UP_TO_MAGIC].view(np.int8)[0])
        header_size = f.V2_HEADER_SIZE if magic >= f.MAGIC_V2 else f.V1_KEY_LENGTH_POS
        if got < min(header_size, len(content)):
            raise Refused(f"a header of {header_size} bytes, and {got} are left, at position {position}")
        content[f.MAGIC_POS] = min(max(magic, f.MAGIC_V1), f.MAGIC_V2) if magic else f.MAGIC_V0
        batch = np.zeros(1, dtype=BATCH)
        e = batch[0]
        read_header(content, 0, size, position, e)
        least = f.V2_HEADER_SIZE if magic >= f.MAGIC_V2 else f.V0_MIN_SIZE
        content[f.MAGIC_POS] = magic & 0xFF  # the checksum of a message is of the magic, too
        e["crc_computed"] = checksum(content, 0, size) if size >= least else -1
        if magic > f.MAGIC_V2:
            content[f.MAGIC_POS] = f.MAGIC_V2
            e["crc_computed"] = checksum(content, 0, size) if size >= least else -1
        e["magic"] = magic
        e["fault"], e["data_size"] = faults.CRC_MISMATCH, 0
        return batch
