"""``--include-swap``: the swap files of a crash, in the listing, in ``scan`` and in the tables."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.decode.summary import Summary
from kafka_log_lake.pipelines.listing import naming
from kafka_log_lake.pipelines.listing.list_segments import list_segments
from kafka_log_lake.pipelines.listing.listing import Listing
from kafka_log_lake.pipelines.plan.headers import end_of_batches
from kafka_log_lake.pipelines.scan import report
from kafka_log_lake.pipelines.scan.command import scan
from kafka_log_lake.pipelines.scan.losses import next_steps
from kafka_log_lake.pipelines.scan.report_json import to_json
from tests.support import as_command, swap_cases
from tests.support.logs import batch, batches, contents, put, rows
from tests.support.swap_cases import finish, put_leftover

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TORN = [*batches(0, 2), batch(6)[:40]]


def listing_of(*sources: Path) -> Listing:
    return list_segments([str(one) for one in sources], read_end=end_of_batches)


def files_of(listing: Listing, *, wanted: bool = True) -> list[tuple[str, str | None]]:
    """Of each segment its name, and that of the swap file with its bytes."""
    return [
        (row["segment"].rpartition("/")[2], row["file"] and row["file"].rpartition("/")[2])
        for row in listing.segments.to_pylist()
        if row["wanted"] or not wanted
    ]


def name(base: int, suffix: str = "") -> str:
    return f"{base:020d}.log{suffix}"


@pytest.mark.parametrize(
    ("case", "skipped", "swap_files"),
    [
        (swap_cases.old_segments_there, {naming.REPLACED: 2}, 1),
        (swap_cases.only_copy, {}, 1),
        (swap_cases.half_of_the_old_deleted, {naming.REPLACED: 1, naming.TO_DELETE: 1}, 1),
        (swap_cases.split_in_two, {naming.REPLACED: 1}, 2),
        (swap_cases.split_not_finished, {naming.CLEANED: 1, naming.SWAP_UNFINISHED: 1}, 0),
        (swap_cases.index_alone, {}, 0),
    ],
)
def test_every_file_is_reported(tmp_path: Path, case: Any, skipped: dict[str, int], swap_files: int) -> None:
    case(tmp_path / "a-0")
    listing = listing_of(tmp_path)
    assert (listing.skipped, listing.swap_files) == (skipped, swap_files)
    without = list_segments(str(tmp_path))
    assert (without.swap_files, naming.REPLACED in without.skipped) == (0, False)


def test_a_damaged_swap_file_waits_as_long_as_the_old_segments_are_there(tmp_path: Path) -> None:
    folder = tmp_path / "a-0"
    put_leftover(folder, 0, ".swap", *TORN)
    put(folder, 0, *batches(0, 3))
    put(folder, 9, *batches(9, 2))
    listing = listing_of(tmp_path)
    assert (files_of(listing), listing.skipped) == (
        [(name(0), None), (name(9), None)],
        {naming.SWAP_NOT_WHOLE: 1},
    )
    (folder / name(0)).unlink()
    listing = listing_of(tmp_path)
    assert (files_of(listing), listing.skipped) == ([(name(0), name(0, ".swap")), (name(9), None)], {})


def test_a_file_that_is_named_alone_is_read_where_its_bytes_are(tmp_path: Path) -> None:
    swap_cases.old_segments_there(tmp_path / "a-0")
    assert files_of(listing_of(tmp_path / "a-0" / name(0))) == [(name(0), name(0, ".swap"))]
    with pytest.raises(UserError, match=naming.REPLACED):
        scan(Settings(source=(str(tmp_path / "a-0" / name(9)),), include_swap=True))


def test_topics_that_are_not_requested_are_left_alone(tmp_path: Path) -> None:
    swap_cases.old_segments_there(tmp_path / "a-0")
    swap_cases.only_copy(tmp_path / "b-0")
    listing = list_segments(str(tmp_path), topics="b", read_end=end_of_batches)
    assert (listing.not_requested, listing.skipped, listing.swap_files) == ({"a"}, {}, 1)


def test_landed_bytes_have_no_swap_files() -> None:
    with pytest.raises(UserError, match="--include-swap is for files"):
        Settings(lake="lake", from_raw=True, include_swap=True)


# scan


def test_a_scan_reports_what_it_took(tmp_path: Path) -> None:
    swap_cases.old_segments_there(tmp_path / "a-0")
    swap_cases.split_not_finished(tmp_path / "b-0")
    findings = scan(Settings(source=(str(tmp_path),), include_swap=True, cores=1))
    assert [(log.topic, log.segments, log.records) for log in findings.logs] == [("a", 2, 19), ("b", 2, 21)]
    swap = f"file://{tmp_path}/a-0/{name(0, '.swap')}"
    text = "\n".join(report.to_text(findings))
    for printed in (
        swap,
        naming.REPLACED,
        naming.SWAP_UNFINISHED,
        f"--source {tmp_path} --include-swap --lake",
    ):
        assert printed in text
    assert to_json(findings)["swap_files"] == [swap]


def test_a_scan_without_the_option_names_it(tmp_path: Path) -> None:
    swap_cases.only_copy(tmp_path / "a-0")
    findings = scan(Settings(source=(str(tmp_path),), cores=1))
    assert findings.logs[0].records == 6
    assert dict(findings.skipped) == {naming.SWAP: 1}
    assert "--include-swap --lake" in "\n".join(next_steps(findings))


def test_damage_is_reported_by_the_file_that_has_it(tmp_path: Path) -> None:
    swap = put_leftover(tmp_path / "a-0", 0, ".swap", *TORN)
    put(tmp_path / "a-0", 9, batch(9))
    findings = scan(Settings(source=(str(tmp_path),), include_swap=True, cores=1))
    ((_, damage),) = findings.damages
    assert (damage.segment, damage.reason) == (f"file://{swap}", "truncated")


# The tables


def offsets(lake: str) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for row in rows(lake, "records"):
        found.setdefault(row["topic"], []).append(row["offset"])
    return {topic: sorted(of) for topic, of in sorted(found.items())}


ALL, CLEANED = [*range(21)], [0, *range(3, 21)]
WITHOUT = {"merged": ALL, "only": [*range(15, 21)], "split": ALL, "unfinished": ALL}
WITH = {"merged": CLEANED, "only": CLEANED}


def test_no_run_loses_or_doubles_a_record(
    spark: SparkSession, lake_template: str, lake: str, tmp_path: Path
) -> None:
    """After the crash without the option, with it, without it again; and when the broker is back."""
    logs = tmp_path / "logs"

    def run(include_swap: bool, into: str = lake, **how: Any) -> Summary:
        return as_command.decode(
            spark, Settings(lake=into, source=(str(logs),), include_swap=include_swap, **how)
        )

    def fresh(include_swap: bool, **how: Any) -> dict[str, list[dict[str, Any]]]:
        folder = str(tmp_path / f"fresh {len(list(tmp_path.iterdir()))}")
        shutil.copytree(lake_template, folder)
        run(include_swap, folder, **how)
        return contents(folder)

    swap_cases.old_segments_there(logs / "merged-0")
    swap_cases.only_copy(logs / "only-0")
    swap_cases.split_in_two(logs / "split-0")
    swap_cases.split_not_finished(logs / "unfinished-0")
    assert run(False).skipped == {naming.SWAP: 5, naming.CLEANED: 1}
    assert offsets(lake) == WITHOUT
    summary = run(True)
    assert offsets(lake) == {**WITHOUT, **WITH}
    assert (summary.segments, summary.swap_files) == (4, 4)
    assert summary.skipped == {naming.CLEANED: 1, naming.REPLACED: 3, naming.SWAP_UNFINISHED: 1}
    assert "in place of segments: 4 swap files" in summary.to_text()
    held = contents(lake)
    assert held == fresh(True, read="binary")
    assert run(True).segments == 0
    run(False)  # the segments are as before the crash, and what no segment has stays
    assert offsets(lake) == {**WITHOUT, "only": WITH["only"]}
    run(True)
    for topic in ("merged", "only", "split"):
        finish(logs / f"{topic}-0")
    assert (run(False).segments, contents(lake)) == (0, held)
