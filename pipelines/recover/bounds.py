"""Finds what one copy says of its log: its leader epochs, where it begins and ends."""

from __future__ import annotations

import numpy as np

from kafka_log_lake.pipelines.recover.entries import TAILS, Copy, rows_where
from kafka_log_lake.udfs.format.file_names import file_name
from kafka_log_lake.udfs.indexes.files import PRODUCER_SNAPSHOT

END = np.iinfo(np.int64).max
Epochs = list[tuple[int, int]]  # (leader epoch, start offset), both rising


def epochs_of_batches(copy: Copy) -> Epochs:
    """Returns the epochs of a copy's batches with the first offset of each.

    Headers of damaged batches count where they fit between their neighbours: an epoch may begin with one.
    """
    entries = rows_where(copy.entries, copy.entries["epoch"] >= 0)
    entries = np.take(entries, np.lexsort((entries["position"], entries["file"])))
    starts: dict[int, int] = {}
    reached, epoch = -1, 0
    is_hurt = ~entries["is_sound"]
    begins = np.append(True, np.diff(entries["epoch"]) != 0) | is_hurt
    begins[1:] |= is_hurt[:-1]
    for at in np.flatnonzero(begins[: len(entries)]):
        entry = entries[at]
        base, stored = int(entry["base"]), int(entry["epoch"])
        if not entry["is_sound"]:
            reached = int(entries[at - 1]["last"]) if at and entries[at - 1]["is_sound"] else reached
            behind = entries[at + 1 :][entries["is_sound"][at + 1 :]][:1]
            fits = (
                len(behind)
                and stored <= int(behind["epoch"][0])
                and int(entry["last"]) < int(behind["base"][0])
            )
            if not (fits and stored >= epoch and base == reached + 1):
                continue
        epoch, reached = max(epoch, stored), int(entry["last"])
        starts[stored] = min(starts.get(stored, END), base)
    return sorted(starts.items())


def believed_epochs(copy: Copy) -> Epochs:
    """Returns the entries of ``leader-epoch-checkpoint`` that the copy's batches do not contradict.

    Adds the others to ``copy.unbelieved``.
    """
    sound = copy.sound
    sound = rows_where(sound, sound["epoch"] >= 0)
    kept: Epochs = []
    for at, (epoch, start) in enumerate(copy.epochs or []):
        older = sound["epoch"] < epoch
        # the first entry begins with the log's start, which may lie in a batch, or after some that are left
        newer = sound["epoch"] >= epoch + (at == 0)
        contradicts = ((sound["last"] >= start) & older | (sound["base"] < start) & newer).any()
        if contradicts or epoch < 0 or start < 0:
            copy.unbelieved.append(f"leader-epoch-checkpoint: epoch {epoch} from offset {start}")
        else:
            kept.append((epoch, start))
    return kept


def check_snapshots(copy: Copy) -> None:
    """Removes the producer snapshots of a copy that its batches contradict.

    A producer's last offset belongs to a batch; where the copy has it, the batch is of the same producer.
    """
    sound = copy.sound
    for base, producers in list(copy.snapshots.items()):
        kept = producers[producers["last_offset"] >= 0]
        at = np.searchsorted(sound["base"], kept["last_offset"], side="right") - 1
        batches = sound[np.maximum(at, 0)] if len(sound) else sound
        if not len(batches):
            continue
        inside = (at >= 0) & (batches["last"] >= kept["last_offset"]) & (batches["magic"] == 2)
        other = batches["producer_id"] != kept["producer_id"]
        for row in kept[inside & other][:1]:
            del copy.snapshots[base]
            words = f"producer {row['producer_id']} wrote offset {row['last_offset']} last"
            copy.unbelieved.append(f"{file_name(base, PRODUCER_SNAPSHOT)}: {words}")


def log_end(copy: Copy) -> int:
    """Returns the offset after the copy's last sound batch; without one, its first segment's base offset."""
    sound = copy.sound
    return int(sound["last"].max()) + 1 if len(sound) else copy.first_file or 0


def name_of_empty_end(copy: Copy) -> int | None:
    """Returns the base offset of a copy's last file if nothing but a tail is in it; else None.

    The log had reached that offset.
    """
    last = len(copy.files) - 1
    is_empty = last > 0 and not (copy.entries["file"] == last).any()
    has_damage = any(hurt.file == last and hurt.reason not in TAILS for hurt in copy.hurts)
    return copy.files[last].base if is_empty and not has_damage else None


def log_start(copy: Copy, noted: Epochs) -> int:
    """Returns the first offset of a copy's log, which retention or a deletion of records has moved.

    A broker that moves the start moves the first entry of the epochs too: an epoch that begins before the
    first segment shows that a segment is missing, not deleted.
    """
    first = copy.first_file
    if first is None:
        first = noted[0][1] if noted else 0
    elif noted and noted[0][1] < first:
        first = noted[0][1]
    elif copy.orphans and copy.orphans[0] < first and (not noted or noted[0][1] <= copy.orphans[0]):
        first = copy.orphans[0]
    return max(first, copy.log_start or 0)
