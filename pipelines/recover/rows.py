"""Makes rows of the tables of ``recover`` from compared partitions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from kafka_log_lake.pipelines.recover.bounds import believed_epochs, epochs_of_batches, log_end, log_start
from kafka_log_lake.pipelines.recover.compare import Compared
from kafka_log_lake.pipelines.recover.entries import DELETED, MENDED_WORDS, Copy, are_among
from kafka_log_lake.pipelines.recover.intervals import joined, missing
from kafka_log_lake.udfs.format.recovery_tables import DIVERGENCE, HEALED_BATCHES, LOST_RANGES, REPLICA_REPORT

Row = dict[str, Any]
_ALL_MENDED = sum(MENDED_WORDS)
DIVERGED, BEFORE_START, OTHER_ID = "diverged", "before-log-start", "other-topic-id"


def epoch_texts(epochs: Sequence[tuple[int, int]]) -> list[str]:
    """Returns ``EPOCH@START_OFFSET`` for each pair of leader epoch and start offset."""
    return [f"{epoch}@{offset}" for epoch, offset in epochs]


def range_text(first: int, last: int) -> str:
    """Returns ``FIRST-LAST`` of offsets, both included; one number where they are the same."""
    return f"{first}-{last}" if first != last else str(first)


def replica_rows(compared: Compared) -> Iterator[Row]:
    """Yields a row of ``replica_report`` for each copy."""
    for copy in (*compared.copies, *compared.others):
        is_own = copy in compared.copies
        noted = believed_epochs(copy) if is_own else copy.epochs or []
        sound = copy.entries[copy.entries["is_sound"]]
        start, end = log_start(copy, noted), log_end(copy)
        known = dict(epochs_of_batches(copy)) | dict(noted)
        yield {
            "topic": compared.topic,
            "partition": compared.partition,
            "topic_id": copy.topic_id,
            "copy": copy.name,
            "broker_id": copy.broker_id,
            "partition_dir": copy.folder,
            "state": copy.state,
            "role": _role(compared, copy),
            "log_start_offset": start,
            "log_end_offset": end,
            "high_watermark": copy.high_watermark,
            "recovery_point": copy.recovery_point,
            "epochs": epoch_texts(sorted(known.items())),
            "batches": len(sound),
            "bytes": sum(file.length for file in copy.files),
            "missing": [range_text(*gap) for gap in _missing(compared, copy, start, end)] if is_own else [],
            "damaged_ranges": len(copy.hurts),
            "damage": [
                f"{copy.files[hurt.file].uri.rpartition('/')[2]} byte {hurt.position}, {hurt.size} bytes: "
                f"{hurt.reason}"
                for hurt in copy.hurts
            ],
            "mended": int(np.count_nonzero(copy.entries["mended"])),
            "diverged_from": _diverged_from(compared, copy) if is_own else None,
            "behind": _behind(compared, copy) if is_own and copy.state != DELETED else None,
            "last_written": max((file.modified for file in copy.files), default=None),
            "contradicted": list(dict.fromkeys([*copy.unbelieved, *copy.unreadable])),
        }


def _role(compared: Compared, copy: Copy) -> str:
    if copy not in compared.copies:
        return OTHER_ID
    if copy.number == compared.history.primary:
        return "primary"
    return "holder" if copy.number in compared.history.holders else "other"


def _missing(compared: Compared, copy: Copy, start: int, end: int) -> list[tuple[int, int]]:
    """Returns the ranges of true offsets that a copy lacks between its own log start and log end."""
    known = joined(compared.healed.known[copy.number])
    return missing(known, max(start, compared.history.start), min(end, compared.history.end))


def _diverged_from(compared: Compared, copy: Copy) -> int | None:
    entries = copy.entries[copy.entries["is_sound"] & ~compared.history.is_true[copy.number]]
    return int(entries["base"].min()) if len(entries) else None


def _behind(compared: Compared, copy: Copy) -> int:
    end = compared.true_end(copy)
    return max(0, compared.history.end - (compared.history.start if end is None else end))


def losing(compared: Compared) -> Iterator[tuple[Copy, str, np.ndarray]]:
    """Yields (copy, reason, ENTRY[n]): sound batches of copies that the true history lacks."""
    for copy in compared.copies:
        sound, true = copy.entries["is_sound"], compared.history.is_true[copy.number]
        before = true & (copy.entries["base"] < compared.history.start)
        yield copy, DIVERGED, copy.entries[sound & ~true]
        yield copy, BEFORE_START, copy.entries[sound & before]
    for copy in compared.others:
        yield copy, OTHER_ID, copy.entries[copy.entries["is_sound"]]


def divergence_rows(compared: Compared) -> Iterator[Row]:
    """Yields a row of ``divergence`` for each range of a copy's batches of one epoch that are not true."""
    for copy, why, batches in losing(compared):
        for epoch in np.unique(batches["epoch"]).tolist():
            some = batches[batches["epoch"] == epoch]
            for first, last in joined(zip(some["base"].tolist(), some["last"].tolist(), strict=True)):
                inside = (some["base"] >= first) & (some["last"] <= last)
                if why == BEFORE_START:
                    last = min(last, compared.history.start - 1)
                yield {
                    "topic": compared.topic,
                    "partition": compared.partition,
                    "first_offset": first,
                    "last_offset": last,
                    "copy": copy.name,
                    "leader_epoch": epoch,
                    "batches": int(np.count_nonzero(inside)),
                    "why": why,
                    "true_copies": _holders_of(compared, first, last),
                    "true_epochs": epoch_texts(compared.history.epochs),
                    "rule": _rule(compared, why),
                    "certainty": str(compared.history.sure),
                    "detail": "; ".join(compared.history.doubts) or None,
                }


def _rule(compared: Compared, why: str) -> str:
    if why == OTHER_ID:
        return compared.id_rule
    if why == BEFORE_START:
        start = compared.history.start
        return f"the log begins at {start}, the highest log start of the copies with its last epoch"
    return compared.history.rule


def _holders_of(compared: Compared, first: int, last: int) -> list[str]:
    return [
        copy.name
        for copy in compared.copies
        if any(begin <= last and end >= first for begin, end in compared.healed.known[copy.number])
    ]


def lost_rows(compared: Compared) -> Iterator[Row]:
    """Yields a row of ``lost_ranges`` for each range that no copy has."""
    for lost in compared.healed.lost:
        yield {
            "topic": compared.topic,
            "partition": compared.partition,
            "first_offset": lost.first,
            "last_offset": lost.last,
            "certain_records": lost.certain,
            "possible_records": lost.possible,
            "reason": lost.reason,
            "detail": lost.detail,
        }


# The tables that describe a partition, and what makes their rows
REPORTED = {REPLICA_REPORT: replica_rows, DIVERGENCE: divergence_rows, LOST_RANGES: lost_rows}


def healed_table(compared: Compared, segments: pa.Array, positions: np.ndarray) -> pa.Table:
    """Makes the rows of ``healed_batches``; segments and positions: where the batches lie once written."""
    batches = compared.healed.batches
    names = pa.array([copy.name for copy in compared.copies], pa.string())
    place = np.zeros(max(copy.number for copy in compared.copies) + 1, dtype=np.int64)
    place[[copy.number for copy in compared.copies]] = np.arange(len(compared.copies))
    mended = pa.array([_mended(bits) for bits in range(_ALL_MENDED + 1)], pa.string())
    columns = {
        "topic": pa.repeat(pa.scalar(compared.topic), len(batches)),
        "partition": np.full(len(batches), compared.partition, dtype=np.int32),
        "base_offset": batches["base"],
        "last_offset": batches["last"],
        "leader_epoch": batches["epoch"],
        "declared_count": batches["count"],
        "copy": names.take(pa.array(place[batches["copy"]])),
        "copies": _copies_of(compared),
        "mended": mended.take(pa.array(batches["mended"])),
        "source_segment": source_files(compared.copies, batches),
        "source_position": batches["position"],
        "size_bytes": batches["size"],
        "crc": batches["crc"],
        "segment": segments,
        "position": positions,
    }
    return pa.table(columns).cast(HEALED_BATCHES.arrow_schema())


def source_files(copies: Sequence[Copy], batches: np.ndarray) -> pa.DictionaryArray:
    """Returns string[n]: the URIs of the segments that batches are taken from."""
    first = np.zeros(max(copy.number for copy in copies) + 1, dtype=np.int64)
    counts = [len(copy.files) for copy in copies]
    first[[copy.number for copy in copies]] = np.cumsum([0, *counts[:-1]])
    uris = pa.array([file.uri for copy in copies for file in copy.files], pa.string())
    return pa.DictionaryArray.from_arrays(first[batches["copy"]] + batches["file"], uris)


def _mended(bits: int) -> str | None:
    return ", ".join(word for bit, word in MENDED_WORDS.items() if bits & bit) or None


def _copies_of(compared: Compared) -> np.ndarray:
    """Returns int32[n]: how many copies have each healed batch whole."""
    batches = compared.healed.batches
    count = np.zeros(len(batches), dtype=np.int32)
    for copy in compared.copies:
        count += are_among(batches, copy.sound)
    return count
