"""Finds wrong base offsets and leader epochs of sound batches, which no checksum covers, by neighbours."""

from __future__ import annotations

import numpy as np

from kafka_log_lake.pipelines.inspect_batch import causes
from kafka_log_lake.pipelines.inspect_batch.causes import Cause
from kafka_log_lake.pipelines.inspect_batch.place import BatchPlace, header_of, read
from kafka_log_lake.udfs.batches.offsets import NO_LIMIT, RUN, misplaced
from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.storage.byte_source import ByteSource

_MOST_SEARCHED = 1 << 24


def contradictions(source: ByteSource, content: np.ndarray, place: BatchPlace, records: int) -> list[Cause]:
    """Finds flipped bits in the base offset or epoch of a sound batch, by what is next to it.

    Or finds that batches are in the wrong order: then the offset is right, in another place. records: how
    many are in the batch.
    """
    e = header_of(content, place.position)
    v2 = e["magic"] == f.MAGIC_V2
    causes_ = []
    # in a log without gaps; a wrapper's offset is its last message's
    span = int(e["last_offset_delta"]) if v2 else max(records, 1) - 1
    order = _order(source, content, place, int(e["last_offset"]) - span, int(e["last_offset"]))
    if order is not None:
        return [order]
    offset = _offset_flip(content, int(e["base_offset" if v2 else "last_offset"]), place, span, bool(v2))
    if offset is not None:
        causes_.append(offset)
    if v2:
        epoch = _epoch_flip(content, e, place)
        if epoch is not None:
            causes_.append(epoch)
    return causes_


def _order(source: ByteSource, content: np.ndarray, place: BatchPlace, first: int, last: int) -> Cause | None:
    """Finds a batch that is there twice, or before the one that it follows. first, last: its offsets."""
    before, after = place.before, place.after
    if before is not None and first <= before.last_offset and not _may_be_equal(content, place, first, last):
        begin = max(0, place.position - _MOST_SEARCHED)
        at = read(source, begin, place.position - begin).tobytes().rfind(content.tobytes())
        if at >= 0:
            text = f"the same batch is at position {begin + at}: a block that was written twice"
            return Cause(causes.ORDER, causes.CERTAIN, text, place.position, len(content))
    low = before.last_offset if before is not None else max(-1, place.first_offset - 1)
    if after is None or not after.is_sound or not low < after.last_offset < first:
        return None
    follows = after.magic == f.MAGIC_V2 and after.base_offset == low + 1  # no room for this batch between
    if not follows and after.last_offset + 1 != first:
        return None
    text = f"the next batch, at position {after.position}, with offsets up to {after.last_offset}, belongs "
    text += f"before this one, with offsets {first} to {last}: two writes in the wrong order"
    return Cause(causes.ORDER, causes.LIKELY, text, place.position, len(content) + after.size)


def _may_be_equal(content: np.ndarray, place: BatchPlace, first: int, last: int) -> bool:
    """Returns whether an earlier message may have the same bytes, and this one's offset was changed.

    A message of magic 0 has no time, and one that is not compressed no offset but its own. There must be room
    for another offset.
    """
    before, after = place.before, place.after
    if content[f.MAGIC_POS] >= f.MAGIC_V2 or content[f.LEGACY_ATTRIBUTES_POS] & f.CODEC_MASK:
        return False
    return before is not None and (after is None or after.last_offset - before.last_offset - 1 > last - first)


def _offset_flip(content: np.ndarray, stored: int, place: BatchPlace, span: int, v2: bool) -> Cause | None:
    """Finds one flipped bit in a batch's offset, by its neighbours; None where there is none.

    span: the last offset less the first one. stored: the first offset of magic 2, else the last.
    """
    before, after = place.before, place.after
    low = before.last_offset + 1 if before is not None else place.first_offset
    if low < 0:
        return None
    wanted = low if v2 else low + span
    # of magic 0 and 1 the next header has its last offset
    next_offset = 1 << 62 if after is None else after.base_offset if v2 else after.last_offset
    high = next_offset - span if v2 else next_offset
    is_wrong = _is_misplaced(place, stored if v2 else stored - span, stored + span if v2 else stored)
    if not is_wrong and (stored == wanted or (v2 and stored + 1 == high)):
        return None
    flips = [(bit, v) for bit, v in causes.single_bits(stored, 8) if low <= v < high or v == wanted]
    flips.sort(key=lambda flip: (flip[1] != wanted, flip[1] + 1 != high))
    if not flips or (not is_wrong and flips[0][1] != wanted):
        return None
    bit, value = flips[0]
    name, sure = ("baseOffset" if v2 else "offset"), causes.LIKELY if is_wrong else causes.POSSIBLE
    why = f"the batch before ends with {low - 1}" if before is not None else f"the file's name has {low}"
    if after is not None:
        why += f", the next one has {next_offset}"
    if not is_wrong and low <= stored < high:
        why += ". Nothing contradicts it: a compacted log has such gaps"
    return _outside(content, place.position, f.OFFSET_POS, 8, bit, (name, stored, value, why, sure))


def _is_misplaced(place: BatchPlace, first: int, last: int) -> bool:
    """Returns whether the offsets of the batch are wrong, by the batches next to it and the file's name."""
    before, after = (
        [] if neighbour is None else [(neighbour.base_offset, neighbour.last_offset)]
        for neighbour in (place.before, place.after)
    )
    limits = np.iinfo(np.int64)
    bounds = max(first, limits.min), min(last, limits.max)
    runs = np.zeros(len(before) + 1 + len(after), dtype=RUN)
    runs["file_base"], runs["file_limit"], runs["batches"] = place.first_offset, NO_LIMIT, 1
    runs["first"], last_offsets = np.array([*before, bounds, *after]).T
    runs["last"] = np.maximum(runs["first"], last_offsets)
    runs["last_base"] = runs["first"]
    return bool(misplaced(runs)[len(before)])


def _epoch_flip(content: np.ndarray, e: np.void, place: BatchPlace) -> Cause | None:
    stored = int(e["leader_epoch"])
    known = [n.leader_epoch for n in (place.before, place.after) if n is not None and n.magic == f.MAGIC_V2]
    noted = place.epoch_at(int(e["base_offset"]))
    low = place.before.leader_epoch if place.before is not None and place.before.magic == f.MAGIC_V2 else -1
    is_last = place.after is None or place.after.magic != f.MAGIC_V2
    high = (1 << 31) - 1 if is_last or place.after is None else place.after.leader_epoch
    fits = low <= stored <= high and (noted < 0 or stored == noted)
    if fits and (stored in known or noted == stored or not known):
        return None
    wanted = [noted] if noted >= 0 else [*known, *range(max(low, 0), min(high, low + 64) + 1)]
    by_value = {value: bit for bit, value in causes.single_bits(stored, 4)}
    value = next((v for v in wanted if v in by_value and v != stored), None)
    if value is None:
        return None
    why = (
        f"the epoch file next to the segment has {noted} here"
        if noted >= 0
        else "neighbours have " + " and ".join(map(str, known))
    )
    if fits:
        why += ". Nothing contradicts it: a new leader may begin here"
    sure = causes.POSSIBLE if fits else causes.LIKELY
    words = ("partitionLeaderEpoch", stored, value, why, sure)
    return _outside(content, place.position, f.LEADER_EPOCH_POS, 4, by_value[value], words)


def _outside(
    content: np.ndarray, position: int, at: int, size: int, bit: int, words: tuple[str, int, int, str, str]
) -> Cause:
    name, stored, value, why, sure = words
    byte = at + size - 1 - bit // 8
    mended = content.copy()
    mended[byte] ^= 1 << (bit % 8)
    what = f"bit {bit % 8} of the byte at position {position + byte} is flipped ({name})"
    text = f"{what}: {stored}, expected {value}: {why}"
    return Cause(causes.BIT, sure, text, position + byte, 1, 1 << (bit % 8), mended.tobytes())
