"""What happens to segment files between runs, and what the tables hold then: the rules of ``pipelines.plan``
on real files, jobs and tables.

A life is a list of steps: each changes the files, and gives the offsets that the tables must hold after the
next run. Unless it says otherwise they are those of a fresh decode, and so is every other column.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafka_log_lake.pipelines.cli.settings import Settings
from tests.support import as_command
from tests.support.logs import batch, batches, contents, put, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Then:
    """What a run must leave: offsets of ``records``, a part of its warnings, whether retention kept rows."""

    offsets: list[int]
    warning: str = ""
    kept: bool = False


Life = Callable[[Path], Iterator[Then]]
_IN_PLACE = 1_700_000_000_000_000_000  # a modification time that a change does not move


def merged_by_the_cleaner(folder: Path) -> Iterator[Then]:
    """Two clean segments become one under the first one's name, whose bytes begin with the first one's."""
    put(folder, 0, *batches(0, 3))
    swallowed = put(folder, 9, *batches(9, 2))
    put(folder, 15, *batches(15, 2))
    yield Then([*range(21)])
    swallowed.unlink()
    put(folder, 0, *batches(0, 5))
    yield Then([*range(21)])


def merged_before_the_other_is_gone(folder: Path) -> Iterator[Then]:
    """A copy in progress: the merged file is seen one run before the swallowed one goes."""
    put(folder, 0, *batches(0, 3))
    swallowed = put(folder, 9, *batches(9, 2))
    put(folder, 15, *batches(15, 2))
    yield Then([*range(21)])
    put(folder, 0, *batches(0, 5))
    yield Then(sorted([*range(21), *range(9, 15)]))
    swallowed.unlink()
    yield Then([*range(21)])


def closed_while_its_copy_is_in_progress(folder: Path) -> Iterator[Then]:
    """A closed segment that is cut, later whole."""
    first, second, third = batches(0, 3)
    put(folder, 0, first, second, third[:-20])
    put(folder, 9, *batches(9, 2))
    yield Then([*range(6), *range(9, 15)])
    put(folder, 0, first, second, third)
    yield Then([*range(15)])


def written_over_after_junk(folder: Path) -> Iterator[Then]:
    """A tail of junk, which the broker truncates at its next start and writes over."""
    first, second = batches(0, 2)
    put(folder, 0, first, second, b"\xee" * 90)
    yield Then([*range(6)])
    put(folder, 0, first, second, *batches(6, 2))
    yield Then([*range(12)])


def payload_written_late(folder: Path) -> Iterator[Then]:
    """A last batch whose payload was zeros, and is there later under the same header."""
    first, second = batches(0, 2)
    put(folder, 0, first, second[:61] + bytes(len(second) - 61))
    yield Then([*range(3)])
    put(folder, 0, first, second)
    yield Then([*range(6)])


def filled_under_the_same_time(folder: Path) -> Iterator[Then]:
    """Preallocated zeros that are filled; neither length nor modification time tells."""
    first, second = batches(0, 2)
    path = put(folder, 0, first, bytes(len(second) + 100))
    os.utime(path, ns=(_IN_PLACE, _IN_PLACE))
    yield Then([*range(3)])
    put(folder, 0, first, second, bytes(100))
    os.utime(path, ns=(_IN_PLACE, _IN_PLACE))
    yield Then([*range(6)])


def truncated_over_segments(folder: Path) -> Iterator[Then]:
    """A new leader's log goes on from offset 3: the segments after it are gone."""
    first, _, _ = batches(0, 3)
    put(folder, 0, *batches(0, 3))
    after = [put(folder, 9, *batches(9, 2)), put(folder, 15, *batches(15, 2))]
    yield Then([*range(21)])
    for path in after:
        path.unlink()
    put(folder, 0, first, batch(3, text="other"))
    yield Then([*range(6)], warning="the segment before them was cut or cleaned")


def truncated_to_nothing(folder: Path) -> Iterator[Then]:
    put(folder, 0, *batches(0, 3))
    yield Then([*range(9)])
    put(folder, 0)
    yield Then([])


def made_again_under_its_name(folder: Path) -> Iterator[Then]:
    """The topic was deleted and created: another topic id, offsets from 0."""
    put(folder, 0, *batches(0, 3))
    put(folder, 9, *batches(9, 3))
    (folder / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    yield Then([*range(18)])
    shutil.rmtree(folder)
    put(folder, 0, batch(0, text="other"))
    (folder / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAg")
    yield Then([0, 1, 2], warning="deleted and made again")


def made_again_after_its_id_came_late(folder: Path) -> Iterator[Then]:
    """A copy in progress: partition.metadata came after the segments. Retention deleted one before."""
    first, _ = put(folder, 100, *batches(100, 3)), put(folder, 109, *batches(109, 3))
    yield Then([*range(100, 118)])
    first.unlink()
    (folder / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    yield Then([*range(100, 118)], kept=True)
    shutil.rmtree(folder)
    put(folder, 0, batch(0, text="other"))
    (folder / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAg")
    yield Then([0, 1, 2], warning="deleted and made again")


def moved_to_another_disk(folder: Path) -> Iterator[Then]:
    put(folder, 0, *batches(0, 3))
    yield Then([*range(9)])
    there = folder.parent / "disk 2" / folder.name
    there.parent.mkdir()
    folder.rename(there)
    yield Then([*range(9)], warning="is gone, and another folder holds their offsets")


def snapshot(folder: Path) -> Path:
    """A folder of snapshots of a log; the first, ``1``, has segments from 0 and from 6 on, to offset 11."""
    kept = folder.parent.parent / "snapshots"
    put(kept / "1", 0, *batches(0, 2))
    put(kept / "1", 6, *batches(6, 2))
    return kept


def link(folder: Path, target: Path) -> None:
    """Makes the partition's folder a link to another, in place of the one before."""
    folder.parent.mkdir(exist_ok=True)
    folder.unlink(missing_ok=True)
    folder.symlink_to(target)


def linked_to_another_folder(folder: Path) -> Iterator[Then]:
    """A link to the newest snapshot, with other boundaries between its segments."""
    kept = snapshot(folder)
    put(kept / "2", 0, batch(0))
    put(kept / "2", 3, *batches(3, 4))
    link(folder, kept / "1")
    yield Then([*range(12)])
    link(folder, kept / "2")
    yield Then([*range(15)])


def linked_to_a_folder_that_starts_later(folder: Path) -> Iterator[Then]:
    """The same where retention has deleted the first segment there: what is before its start stays."""
    kept = snapshot(folder)
    put(kept / "2", 6, batch(6))
    put(kept / "2", 9, *batches(9, 2))
    link(folder, kept / "1")
    yield Then([*range(12)])
    link(folder, kept / "2")
    yield Then([*range(15)], kept=True)


def linked_to_a_folder_with_other_boundaries(folder: Path) -> Iterator[Then]:
    """No file has offsets 0 to 2 now: their rows stay, and with them those of the same segment."""
    kept = snapshot(folder)
    put(kept / "2", 3, *batches(3, 4))
    link(folder, kept / "1")
    yield Then([*range(12)])
    link(folder, kept / "2")
    warning = "a-0: offsets 3 to 5 are in the tables twice"
    yield Then(sorted([*range(6), *range(3, 15)]), warning=warning, kept=True)


def moved_to_a_folder_with_other_boundaries(folder: Path) -> Iterator[Then]:
    put(folder, 0, *batches(0, 2))
    put(folder, 6, *batches(6, 2))
    yield Then([*range(12)])
    shutil.rmtree(folder)
    put(folder.parent / "disk 2" / folder.name, 3, *batches(3, 4))
    warning = "a-0: offsets 3 to 5 are in the tables twice"
    yield Then(sorted([*range(6), *range(3, 15)]), warning=warning, kept=True)


def emptied_by_the_cleaner(folder: Path) -> Iterator[Then]:
    """Of two segments cleaned as a group the second had no record left: the first one has its old bytes, and
    the time of the second.
    """
    first, second = put(folder, 0, *batches(0, 2)), put(folder, 6, *batches(6, 2))
    put(folder, 12, *batches(12, 2))
    os.utime(first, ns=(_IN_PLACE, _IN_PLACE))
    os.utime(second, ns=(_IN_PLACE + 5_000_321_000, _IN_PLACE + 5_000_321_000))
    yield Then([*range(18)])
    second.unlink()
    os.utime(first, ns=(_IN_PLACE + 5_000_000_000, _IN_PLACE + 5_000_000_000))
    yield Then([*range(6), *range(12, 18)], kept=True)


def emptied_with_a_segment_that_no_run_saw(folder: Path) -> Iterator[Then]:
    """As before, but the last segment of the group came and went between two runs; the first one is empty."""
    first, second = put(folder, 0), put(folder, 6, *batches(6, 2))
    third = put(folder, 12, *batches(12, 2))
    for seconds, path in enumerate((first, second, third)):
        os.utime(path, ns=(_IN_PLACE, _IN_PLACE + seconds * 1_000_321_000))
    yield Then([*range(6, 18)])
    second.unlink()
    third.unlink()
    put(folder, 24, *batches(24, 2))  # written now
    os.utime(first, ns=(_IN_PLACE, _IN_PLACE + 10_742_000_000))
    yield Then([*range(24, 30)], kept=True)


def lost_from_the_middle(folder: Path) -> Iterator[Then]:
    """Nothing of Kafka's removes it: a file that a person or a disk lost. Its rows may be the last copy."""
    put(folder, 0, *batches(0, 2))
    lost = put(folder, 6, *batches(6, 2))
    put(folder, 12, *batches(12, 2))
    yield Then([*range(18)])
    lost.unlink()
    yield Then([*range(18)], warning="the rows stay", kept=True)


def deleted_by_retention(folder: Path) -> Iterator[Then]:
    old = put(folder, 0, *batches(0, 2))
    put(folder, 6, *batches(6, 2))
    yield Then([*range(12)])
    old.unlink()
    yield Then([*range(12)], kept=True)


LIVES: list[Life] = [
    merged_by_the_cleaner,
    merged_before_the_other_is_gone,
    closed_while_its_copy_is_in_progress,
    written_over_after_junk,
    payload_written_late,
    filled_under_the_same_time,
    truncated_over_segments,
    truncated_to_nothing,
    made_again_under_its_name,
    made_again_after_its_id_came_late,
    moved_to_another_disk,
    linked_to_another_folder,
    linked_to_a_folder_that_starts_later,
    linked_to_a_folder_with_other_boundaries,
    moved_to_a_folder_with_other_boundaries,
    emptied_by_the_cleaner,
    emptied_with_a_segment_that_no_run_saw,
    lost_from_the_middle,
    deleted_by_retention,
]


def offsets(lake: str) -> list[int]:
    return sorted(row["offset"] for row in rows(lake, "records"))


def fresh(spark: SparkSession, template: str, source: Path) -> dict[str, list[dict]]:
    lake = str(source.parent / f"fresh-{len(os.listdir(source.parent))}")
    shutil.copytree(template, lake)
    as_command.decode(spark, Settings(lake=lake, source=(str(source),), follow_symlinks=True))
    return contents(lake)


@pytest.mark.parametrize("life", LIVES, ids=lambda life: life.__name__)
def test_the_tables_hold_what_the_files_hold(
    spark: SparkSession, lake_template: str, lake: str, tmp_path: Path, life: Life
) -> None:
    logs = tmp_path / "logs"
    for then in life(logs / "a-0"):
        settings = Settings(lake=lake, source=(str(logs),), follow_symlinks=True)
        summary = as_command.decode(spark, settings)
        assert offsets(lake) == then.offsets
        assert any(then.warning in warning for warning in [*summary.warnings, ""])
        if not then.kept:
            assert contents(lake) == fresh(spark, lake_template, logs)
        again = as_command.decode(spark, settings)
        assert (again.segments, offsets(lake)) == (0, then.offsets)


# What was landed stays when its file or folder goes; and what the cleaner emptied is known by a file's time
_OF_FILES = (
    made_again_after_its_id_came_late,
    moved_to_another_disk,
    moved_to_a_folder_with_other_boundaries,
    lost_from_the_middle,
    emptied_by_the_cleaner,
    emptied_with_a_segment_that_no_run_saw,
)
FROM_RAW = [life for life in LIVES if life not in _OF_FILES]


@pytest.mark.parametrize("life", FROM_RAW, ids=lambda life: life.__name__)
def test_so_they_do_where_the_bytes_are_landed_first(
    spark: SparkSession, lake: str, tmp_path: Path, life: Life
) -> None:
    logs = tmp_path / "logs"
    for then in life(logs / "a-0"):
        as_command.ingest(spark, Settings(lake=lake, source=(str(logs),), follow_symlinks=True))
        as_command.decode(spark, Settings(lake=lake, from_raw=True))
        assert offsets(lake) == then.offsets


def test_landed_bytes_never_take_away_what_files_gave(spark: SparkSession, lake: str, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    path = put(logs / "a-0", 0, *batches(0, 3))
    as_command.ingest(spark, Settings(lake=lake, source=(str(logs),)))
    put(logs / "a-0", 0, *batches(0, 6))
    as_command.decode(spark, Settings(lake=lake, source=(str(logs),)))
    path.unlink()
    as_command.decode(spark, Settings(lake=lake, from_raw=True))
    assert offsets(lake) == list(range(18))
    as_command.decode(spark, Settings(lake=lake, from_raw=True, redecode="a-0"))
    assert offsets(lake) == list(range(18))


def test_landed_bytes_that_the_cleaner_merged_since_come_in_no_second_time(
    spark: SparkSession, lake: str, tmp_path: Path
) -> None:
    """Also where retention has taken the merged file, and the topic begins again after its first offset."""
    logs = tmp_path / "logs"
    first, swallowed = put(logs / "a-0", 0, *batches(0, 3)), put(logs / "a-0", 9, *batches(9, 2))
    as_command.ingest(spark, Settings(lake=lake, source=(str(logs),)))
    put(logs / "a-0", 0, *batches(0, 5))
    swallowed.unlink()
    as_command.decode(spark, Settings(lake=lake, source=(str(logs),)))
    first.unlink()
    put(logs / "a-0", 6, *batches(6, 1))
    as_command.decode(spark, Settings(lake=lake, source=(str(logs),)))
    as_command.decode(spark, Settings(lake=lake, from_raw=True))
    assert offsets(lake) == sorted([*range(15), *range(6, 9)])


def test_one_copy_goes_to_the_replica_that_overtakes(spark: SparkSession, lake: str, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    put(logs / "broker 1" / "a-0", 0, *batches(0, 4))
    put(logs / "broker 2" / "a-0", 0, *batches(0, 3))
    settings = Settings(lake=lake, source=(str(logs),), one_copy=True)
    as_command.decode(spark, settings)
    assert offsets(lake) == list(range(12))
    put(logs / "broker 2" / "a-0", 0, *batches(0, 5))
    summary = as_command.decode(spark, settings)
    assert offsets(lake) == list(range(15))
    assert any("--one-copy takes another copy" in warning for warning in summary.warnings)
