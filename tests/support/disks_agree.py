"""Compares what ``scan``, ``find``, ``decode`` and the views say of random damaged disks with each other.

``python -m tests.support.disks_agree 300 SEED`` makes that many logs, of shapes that ``random_logs`` has not:
magic 0 and 1 with what the cleaner leaves, wrappers, copies, files that a broker left behind, checkpoint
files that contradict the segments, empty last files, mad base offsets. No model knows the right answer here;
a contradiction between two of them is wrong in one.
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kafka_log_lake import connect
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.find.command import search
from kafka_log_lake.pipelines.find.request import Request
from kafka_log_lake.pipelines.scan.command import scan
from kafka_log_lake.udfs.batches.account import END, WRONG_BASE
from tests.support import as_command
from tests.support import segment_maker as make
from tests.support.logs import batch, data, marker, put

MAD = (-1, -(2**63), 2**63 - 1, 2**62, 2**31)
Answers = dict[str, dict[str, Any]]  # by folder, by what is asked


def entries(pick: random.Random, offset: int) -> tuple[list[bytes], int]:
    """Returns entries of a segment from an offset on, and the offset after them."""
    made: list[bytes] = []
    is_cleaned, kind = pick.random() < 0.3, pick.choice((0, 1, 2, 2, 2, 3))
    for _ in range(pick.randint(1, 6)):
        offset += pick.randint(1, 5) if is_cleaned and pick.random() < 0.5 else 0
        count = pick.randint(1, 3)
        magic = pick.choice((0, 1, 2)) if kind == 3 else kind
        stored = pick.choice(MAD) if pick.random() < 0.03 else offset ^ (1 << pick.randint(0, 40))
        base = stored if pick.random() < 0.06 else offset
        if magic == 2 and pick.random() < 0.3:
            made.append(marker(base, 7) if pick.random() < 0.4 else data(base, 7, count))
            count = 1 if len(made[-1]) == len(marker(0, 7)) else count
        elif magic == 2:
            made.append(batch(base, count))
        else:
            inner = [make.Message(magic, base + at, key=b"k", value=b"v") for at in range(count)]
            if pick.random() < 0.5:
                made.append(make.wrap(inner, codec=make.GZIP, magic=magic).encode())
            else:
                made += [one.encode() for one in inner]
        if pick.random() < 0.08:
            made[-1] = make.flip(made[-1], pick.randrange(len(made[-1])))
        if pick.random() < 0.05:
            made.append(pick.choice((b"\xff" * 70, b"\0" * 90, make.flip(made[-1], 8)[:40])))
        offset += count
    return made, offset


def write_log(pick: random.Random, folder: Path) -> None:
    """Writes the segments of one log, and files next to them that may contradict these."""
    offset = pick.choice((0, 0, 5, 1000, 2**40))
    files = pick.randint(1, 4)
    for _ in range(files):
        made, end = entries(pick, offset)
        if pick.random() < 0.85:
            put(folder, offset, *made)
        elif pick.random() < 0.5:
            (folder / f"{offset:020d}.log.deleted").parent.mkdir(parents=True, exist_ok=True)
            (folder / f"{offset:020d}.log.deleted").write_bytes(b"".join(made))
        offset = end + pick.choice((0, 0, 0, 0, 3))
    path = put(folder, offset, *(entries(pick, offset)[0] if pick.random() < 0.6 else ()))
    if pick.random() < 0.15:
        with path.open("ab") as file:
            file.write(pick.choice((b"\0" * 200, batch(offset + 50)[:30], batch(offset + 50)[:-3])))
    if pick.random() < 0.3:
        epochs = [
            (pick.randint(0, 4), max(0, offset + pick.randint(-9, 9))) for _ in range(pick.randint(1, 3))
        ]
        lines = "\n".join(f"{epoch} {start}" for epoch, start in epochs)
        (folder / "leader-epoch-checkpoint").write_text(f"0\n{len(epochs)}\n{lines}\n")
    if pick.random() < 0.1:
        (folder / f"{offset + 7:020d}.index").write_bytes(b"")


def write_disk(pick: random.Random, disk: Path, count: int) -> None:
    """Writes the logs of a log directory, and its checkpoint files."""
    noted: dict[str, list[str]] = {}
    for number in range(count):
        name = f"t{number % (count * 2 // 3)}"
        folder = disk / f"{name}-{number}"
        write_log(pick, folder)
        last = int(max(one.name for one in folder.glob("*.log"))[:20])
        for kind in ("replication-offset", "recovery-point-offset", "log-start-offset", "cleaner-offset"):
            if pick.random() < 0.25:
                offset = max(0, last + pick.randint(-12, 4))
                noted.setdefault(kind, []).append(f"{name} {number} {offset}")
    for kind, lines in noted.items():
        text = "".join(f"{line}\n" for line in lines)
        (disk / f"{kind}-checkpoint").write_text(f"0\n{len(lines)}\n{text}")


def of_scan(disk: Path) -> Answers:
    found: Answers = {}
    for log in scan(Settings(source=(str(disk),), cores=1)).logs:
        found[log.partition_dir] = {
            "records": log.records + log.control_records,
            "missing": _joined((one.first, one.last, one.cause) for one in log.missing),
            "damage": {(o.first_lost, o.last_lost) for o in log.damages if o.first_lost is not None},
            "compacted": log.is_compacted,
            "held": log.last_stable_offset,
        }
    return found


def of_lake(lake: Path) -> Answers:
    database = connect(str(lake))
    statement = "SELECT DISTINCT partition_dir FROM segments"
    found: Answers = {
        folder: {"records": 0, "missing": set(), "damage": set(), "compacted": False, "held": None}
        for (folder,) in database.sql(statement).fetchall()
    }
    counted = "SELECT left(segment, length(segment) - 25), count(*) FROM records GROUP BY 1"
    for folder, records in database.sql(counted).fetchall():
        found[folder]["records"] = records
    lost = "SELECT partition_dir, first_lost, last_lost, cause FROM lost_offsets WHERE first_lost IS NOT NULL"
    for folder, first, last, cause in database.sql(lost).fetchall():
        one = (first, last) if cause == "damage" else (first, last, cause)
        found[folder]["damage" if cause == "damage" else "missing"].add(one)
    for answers in found.values():
        answers["missing"] = _joined(answers["missing"])
    for (folder,) in database.sql("SELECT partition_dir FROM compacted_logs").fetchall():
        found[folder]["compacted"] = True
    for folder, held in database.sql(
        "SELECT partition_dir, last_stable_offset FROM last_stable_offsets"
    ).fetchall():
        found[folder]["held"] = held
    return found


def _joined(missing: Iterable[tuple[int, int | None, str]]) -> set[tuple[int, int | None, str]]:
    """Joins what several files name of the end of a log."""
    every = {*missing}
    ends = {one for one in every if one[2] == END}
    if not ends:
        return every
    lasts = [last for _, last, _ in ends if last is not None]
    return (every - ends) | {(min(first for first, _, _ in ends), max(lasts), END)}


def of_find(settings: Settings) -> tuple[dict[str, int], dict[str, set[tuple[int, int | None]]]]:
    """Returns by ``<topic>-<partition>`` the records found, and the offsets that were not searched."""
    looked = search(settings, Request())
    counts: dict[str, int] = {}
    for found in looked:
        for topic, partition in zip(found["topic"].to_pylist(), found["partition"].to_pylist(), strict=True):
            counts[f"{topic}-{partition}"] = counts.get(f"{topic}-{partition}", 0) + 1
    unseen: dict[str, set[tuple[int, int | None]]] = {}
    for one in looked.unsearched:
        if one.damage is not None and one.damage.first_lost is not None:
            unseen.setdefault(one.name, set()).add((one.damage.first_lost, one.damage.last_lost))
        elif named := re.fullmatch(r"(.+): offsets (\d+) to (\d+|the end)", one.name):
            last = int(named[3]) if named[3].isdigit() else None
            unseen.setdefault(named[1], set()).add((int(named[2]), last))
    return counts, unseen


def contradictions(disk: Path, lake: Path) -> Iterator[str]:
    """Yields what two of them say differently of a disk."""
    as_command.decode(None, Settings(source=(str(disk),), lake=str(lake), cores=1))
    scanned, stored = of_scan(disk), of_lake(lake)
    counts, unseen = of_find(Settings(source=(str(disk),), cores=1))
    lake_counts, lake_unseen = of_find(Settings(lake=str(lake), cores=1))
    if scanned.keys() != stored.keys():
        yield f"logs: {scanned.keys() ^ stored.keys()}"
    for folder in sorted(scanned.keys() & stored.keys()):
        name = folder.rpartition("/")[2]
        for what, value in scanned[folder].items():
            if value != stored[folder][what]:
                yield f"{name}: {what}: scan {value}, lake {stored[folder][what]}"
        if not scanned[folder]["records"] == counts.get(name, 0) == lake_counts.get(name, 0):
            of_both = f"find {counts.get(name)}, find --lake {lake_counts.get(name)}"
            yield f"{name}: records: scan {scanned[folder]['records']}, {of_both}"
        # records under wrong offsets are found by everything but an offset
        gone = {(first, last) for first, last, cause in scanned[folder]["missing"] if cause != WRONG_BASE}
        lost = gone | scanned[folder]["damage"]
        for who, said in (("find", unseen), ("find --lake", lake_unseen)):
            if lacks := {one for one in lost if not _covered(one, said.get(name, set()))}:
                yield f"{name}: lost by scan, searched by {who}: {lacks}; it has {said.get(name)}"


def _covered(lost: tuple[int, int | None], said: set[tuple[int, int | None]]) -> bool:
    """Returns whether ranges that were not searched have all of these offsets."""
    at = lost[0]
    for first, last in sorted(said, key=lambda one: (one[0], one[1] is None, one[1] or 0)):
        if first <= at:
            if last is None:
                return True
            at = max(at, last + 1)
    return lost[1] is not None and at > lost[1]


def main(count: int, seed: int = 1) -> int:
    found = 0
    for number in range(0, count, 50):
        with TemporaryDirectory() as folder:
            disk = Path(folder).resolve() / "disk"
            write_disk(random.Random(seed + number), disk, min(50, count - number))
            for text in contradictions(disk, Path(folder) / "lake"):
                found += 1
                print(f"seed {seed + number}: {text}")
    print(f"{count:,} logs, {found:,} contradictions")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
