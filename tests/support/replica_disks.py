"""Writes a random set of copies as disks: segments, the files next to them, and what goes wrong with both."""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Sequence
from pathlib import Path

from kafka_log_lake.udfs.values.internal.encode import metadata_record
from tests.support.metadata_disks import metadata_log
from tests.support.replica_sets import Broker, ReplicaSet

TOPIC, TOPIC_ID, CLUSTER = "t", "AAAAAAAAAAAAAAAAAAAAAQ", "Cluster-of-the-model-0"
FUTURE = f"{TOPIC}-0.{'ab' * 16}-future"
METADATA_BYTES = 16  # of a batch, that no checksum covers


EPOCHS, HIGH_WATERMARK = "leader-epoch-checkpoint", "replication-offset-checkpoint"
LOG_START, CLEANED = "log-start-offset-checkpoint", "cleaner-offset-checkpoint"


def write(one: ReplicaSet, folder: Path, seed: int, damage: float = 0.0, odds: float = 0.0) -> list[str]:
    """Writes the disks; the values of ``--source``.

    damage: how likely each batch is damaged. odds: how likely each file next to the segments is gone, old,
    garbled or wrong, a segment is gone or is left of an earlier time, and a copy has another one beside it.
    """
    pick, oddly = random.Random(seed ^ 0x5EED), _Oddly(seed, odds)
    sources = []
    named = _metadata([broker.number for broker in one.brokers])
    for broker in one.brokers:
        disk = folder / f"broker-{broker.number}"
        place = disk / f"{TOPIC}-0"
        _write_place(place, TOPIC_ID)
        (disk / "meta.properties").write_text(f"version=1\ncluster.id={CLUSTER}\nnode.id={broker.number}\n")
        metadata_log(disk, named)
        _write_segments(broker, place, pick, damage)
        if odds:
            oddly.change_segments(broker, place)
            oddly.add_future(broker, disk)
        oddly.write(place / EPOCHS, oddly.entries(broker.epochs, broker.end))
        offsets = {HIGH_WATERMARK: broker.high_watermark, LOG_START: broker.start, CLEANED: broker.cleaned}
        for name, offset in offsets.items():
            if offset is not None:
                offset = oddly.offset(offset, broker.high_watermark)
                oddly.write(disk / name, [(f"{TOPIC} 0", offset)])
        disks = (disk, _second(disk)) if broker.future is not None else (disk,)
        sources += [f"broker-{broker.number}={one}" for one in disks]
    return sources


def _metadata(nodes: list[int]) -> list[bytes]:
    """Records that name these nodes as replicas, so that no copy is missing; who led they do not say."""
    fields = {"partitionId": 0, "topicId": TOPIC_ID, "replicas": nodes, "isr": nodes, "leader": -1}
    return [
        metadata_record("TopicRecord", 0, {"name": TOPIC, "topicId": TOPIC_ID}),
        metadata_record("PartitionRecord", 0, {**fields, "leaderEpoch": 0}),
    ]


def _second(disk: Path) -> Path:
    return disk.with_name(f"{disk.name}-second")


def _write_place(place: Path, topic_id: str) -> None:
    place.mkdir(parents=True)
    (place / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")


class _Oddly:
    """What goes wrong next to the segments, and with whole segments."""

    def __init__(self, seed: int, odds: float) -> None:
        self._pick, self._odds = random.Random(seed ^ 0x0DD), odds

    def _happens(self) -> bool:
        return self._odds > 0 and self._pick.random() < self._odds

    def write(self, path: Path, rows: Sequence[tuple[object, int]]) -> None:
        """A checkpoint file, unless it is gone; it may be zeros, cut, or not end."""
        data = f"0\n{len(rows)}\n" + "".join(f"{key} {offset}\n" for key, offset in rows)
        if self._happens():
            kind = self._pick.choice(("gone", "gone", "zeros", "cut", "noise"))
            if kind == "gone":
                return
            if kind == "zeros":
                data = "\0" * len(data)
            elif kind == "cut":
                data = data[: self._pick.randrange(len(data))]
            else:
                at = self._pick.randrange(len(data))
                data = data[:at] + chr(self._pick.randrange(256)) + data[at + 1 :]
        path.write_text(data, encoding="latin-1")

    def entries(self, epochs: Sequence[tuple[int, int]], end: int) -> list[tuple[int, int]]:
        """Entries of a ``leader-epoch-checkpoint``, of an earlier time or with a wrong one."""
        found = list(epochs)
        if not found or not self._happens() or found[-1][1] >= end:
            return found  # an election after which nothing was written is known from here alone
        kind, at = (
            self._pick.choice(("old", "old", "start", "epoch", "more")),
            self._pick.randrange(len(found)),
        )
        epoch, start = found[at]
        if kind == "old":
            return found[:at]
        if kind == "start":
            found[at] = epoch, self._pick.randint(0, end + 5)
        else:
            found[at] = epoch ^ (1 << self._pick.randrange(8)), start
        return found

    def offset(self, offset: int, most: int) -> int:
        """An entry of a checkpoint file: one of an earlier time, or a wrong one."""
        if not self._happens():
            return offset
        return self._pick.choice((0, self._pick.randint(0, offset), self._pick.randint(0, most)))

    def change_segments(self, broker: Broker, place: Path) -> None:
        """Removes a segment, or adds one that the broker had before it followed another leader."""
        paths = sorted(place.glob("*.log"))
        if len(paths) > 1 and self._happens():
            gone = self._pick.choice(paths)
            data = gone.read_bytes()
            broker.whole = [batch for batch in broker.whole if batch.data not in data]
            gone.unlink()
            if self._pick.random() < 0.5:
                gone.with_suffix(".index").write_bytes(b"")
        if broker.cut_off and self._happens():
            old = broker.cut_off[self._pick.randrange(len(broker.cut_off)) :]
            path = place / f"{old[0].base:020d}.log"
            if not path.exists():
                path.write_bytes(b"".join(batch.data for batch in old))
                broker.whole += [batch for batch in old if batch not in broker.whole]

    def add_future(self, broker: Broker, disk: Path) -> None:
        """A part of the log on its way to another disk of the broker."""
        if self._happens():
            place = _second(disk) / FUTURE
            _write_place(place, TOPIC_ID)
            shutil.copy(disk / "meta.properties", place.parent)
            part = broker.log[: self._pick.randint(0, len(broker.log))]
            base = part[0].base if part else broker.start
            (place / f"{base:020d}.log").write_bytes(b"".join(batch.data for batch in part))
            broker.future = part
            upto = part[-1].last if part else -1
            epochs = [one for one in broker.epochs if one[1] <= upto]
            self.write(place / EPOCHS, epochs)


def _write_segments(broker: Broker, place: Path, pick: random.Random, damage: float) -> None:
    segments: list[list[bytes]] = [[]]
    is_first_kept = broker.log and broker.cleaned is None
    bases = [broker.log[0].base if is_first_kept else broker.start]
    broker.whole = []
    for number, batch in enumerate(broker.log):
        if number and pick.random() < 0.15:
            segments.append([])
            bases.append(batch.base)
        data = batch.data
        if pick.random() < damage:
            data = _damaged(data, pick, is_last=number == len(broker.log) - 1)
        else:
            broker.whole.append(batch)
        segments[-1].append(data)
    for base, segment in zip(bases, segments, strict=True):
        (place / f"{base:020d}.log").write_bytes(b"".join(segment))


def _damaged(data: bytes, pick: random.Random, is_last: bool) -> bytes:
    kind = pick.choice(("flip", "flip", "zeros", "base", "epoch", "length", "cut" if is_last else "flip"))
    found = bytearray(data)
    if kind == "flip":
        at = pick.randrange(METADATA_BYTES + 1, len(data))
        found[at] ^= 1 << pick.randrange(8)
    elif kind == "zeros":
        at = pick.randrange(len(data) - 1)
        found[at:] = bytes(len(data) - at)
        if bytes(found[METADATA_BYTES:]) == data[METADATA_BYTES:]:
            found[-1] ^= 1
    elif kind == "base":
        struct.pack_into(">q", found, 0, struct.unpack_from(">q", data, 0)[0] + pick.choice((-3, 4, 1 << 40)))
    elif kind == "epoch":
        struct.pack_into(">i", found, 12, pick.choice((0, 3, 1 << 20)))
        if bytes(found) == data:
            struct.pack_into(">i", found, 12, 77)
    elif kind == "length":
        struct.pack_into(">i", found, 8, struct.unpack_from(">i", data, 8)[0] ^ (1 << pick.randrange(12)))
    else:
        found = found[: pick.randrange(1, len(data))]
    return bytes(found)
