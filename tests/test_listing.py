"""What a listing finds, whatever folders and files are called: real files, real Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipelines.command.errors import UserError
from pipelines.source import listing
from pipelines.source.listing import list_segments
from pipelines.source.uris import escape

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

FIRST, SECOND = f"{0:020d}.log", f"{100:020d}.log"
# Names that Spark's recursive listing drops, takes for partitions or patterns, or that look encoded
NAMES = [
    ("plain-0", "plain", 0),
    ("__consumer_offsets-7", "__consumer_offsets", 7),
    ("_schemas-0", "_schemas", 0),
    ("k=v-1", "k=v", 1),
    ("a-1-2", "a-1", 2),
    ("with blank-0", "with blank", 0),
    ("br[a-c]{x,y}-0", "br[a-c]{x,y}", 0),
    ("q?*-0", "q?*", 0),
    ("back\\slash-0", "back\\slash", 0),
    ("pct%2F%41-0", "pct%2F%41", 0),
    ("quo'te\"`-0", "quo'te\"`", 0),
    ("new\nline-0", "new\nline", 0),
    ("ünï💡-2147483647", "ünï💡", 2147483647),
    ("x-007", "x", 7),
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "logs %41 [a] it's"
    folder.mkdir()
    return folder


def put(folder: Path, name: str = FIRST, size: int = 5) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(b"x" * size)
    return folder / name


def listed(spark: SparkSession, *sources: Path | str, **options: Any) -> list[Row]:
    return list_segments(spark, [str(s) for s in sources], **options).orderBy("segment").collect()


def segments(spark: SparkSession, *sources: Path | str, **options: Any) -> list[str]:
    """Paths of what is no leftover, without their scheme."""
    return [r.segment.removeprefix("file://") for r in listed(spark, *sources, **options) if r.skip is None]


@pytest.mark.parametrize("depth", ["", "deep/er"])
def test_every_name_of_a_folder_is_found_as_it_is(spark: SparkSession, root: Path, depth: str) -> None:
    paths = {str(put(root / depth / name)): (topic, partition) for name, topic, partition in NAMES}
    found = {r.segment: (r.topic, r.partition) for r in listed(spark, root)}
    assert found == {f"file://{path}": place for path, place in paths.items()}


def test_every_name_may_be_a_source_itself(spark: SparkSession, root: Path) -> None:
    folders = [root / name for name, _, _ in NAMES]
    paths = [str(put(folder)) for folder in folders]
    put(root / "other-0")
    assert segments(spark, *folders) == sorted(paths)
    assert segments(spark, *paths) == sorted(paths)


def test_columns_of_a_segment(spark: SparkSession, root: Path) -> None:
    path = put(root / "a-3", SECOND, size=7)
    (row,) = listed(spark, root)
    assert row.log_dir == f"file://{root}/a-3"
    assert (row.topic, row.partition, row.file_base_offset, row.length) == ("a", 3, 100, 7)
    assert row.modified.timestamp() == pytest.approx(path.stat().st_mtime, abs=0.001)
    assert (row.has_successor, row.skip) == (False, None)


def test_a_segment_knows_its_successor_in_its_own_folder_alone(spark: SparkSession, root: Path) -> None:
    for name in (FIRST, SECOND):
        put(root / "a-0", name)
    put(root / "b-0", FIRST)
    found = {r.segment.rpartition("/a-0/")[2]: r.has_successor for r in listed(spark, root / "a-0")}
    assert found == {FIRST: True, SECOND: False}
    assert not listed(spark, root / "b-0")[0].has_successor


def test_a_file_named_alone_knows_its_successor(spark: SparkSession, root: Path) -> None:
    put(root / "a-0", SECOND)
    (row,) = listed(spark, put(root / "a-0", FIRST))
    assert row.has_successor


def test_overlapping_sources_count_a_file_once(spark: SparkSession, root: Path) -> None:
    path = put(root / "a-0")
    overlapping: list[Path | str] = [
        root,
        root / "a-0",
        path,
        f"file:{root}",
        f"{root}/../{root.name}/a-0/",
        escape(f"{root}/") + "*",
    ]
    assert segments(spark, *overlapping) == [str(path)]


def test_globs_match_folders_and_files(spark: SparkSession, root: Path) -> None:
    first, other = put(root / "a-0"), put(root / "b-0")
    second = put(root / "a-0", SECOND)
    at = escape(str(root))
    assert segments(spark, at + "/a-*") == [str(first), str(second)]
    assert segments(spark, at + "/{a,b}-0/*0.log") == sorted(map(str, (first, second, other)))
    assert segments(spark, at + f"/*/{SECOND}") == [str(second)]


def test_sources_may_lie_beside_each_other(spark: SparkSession, root: Path) -> None:
    first, second = put(root / "one" / "a-0"), put(root / "two" / "a-0")
    put(root / "three" / "a-0")
    assert segments(spark, root / "one", root / "two") == [str(first), str(second)]


def test_what_is_no_segment_keeps_a_reason(spark: SparkSession, root: Path) -> None:
    reasons = {
        put(root / "a-0.3f2a-delete"): listing.DELETED,
        put(root / "a-0.3f2a-stray"): listing.STRAY,
        put(root / "a-0.3F2A-future"): listing.FUTURE,
        put(root / "logs"): listing.NO_PARTITION,
        put(root / "a-0\n"): listing.NO_PARTITION,
        put(root / "a-0", "server.log"): listing.NO_SEGMENT,
        put(root / "a-0", "1.log"): listing.NO_SEGMENT,
        put(root / "a-2147483648"): listing.PARTITION_TOO_BIG,
        put(root / "a-0", "9" * 20 + ".log"): listing.OFFSET_TOO_BIG,
        put(root / f"{'t' * 250}-0"): listing.TOPIC_TOO_LONG,
        put(root / f"{'%' * 84}-0"): listing.TOPIC_TOO_LONG,
        put(root / f"{'t' * 249}-0"): None,
        put(root / f"{'%' * 83}-0"): None,
    }
    found = {r.segment: r.skip for r in listed(spark, root)}
    assert found == {f"file://{path}": reason for path, reason in reasons.items()}


def test_what_lies_beside_segments_is_not_listed(spark: SparkSession, root: Path) -> None:
    path = put(root / "a-0")
    for suffix in (".index", ".timeindex", ".log.deleted", ".log.cleaned", ".log.swap", ".snapshot"):
        put(root / "a-0", "0" * 20 + suffix)
    assert segments(spark, root) == [str(path)]


@pytest.mark.parametrize(
    ("options", "topics"),
    [
        ({"topics": "a|ab"}, ["a", "ab"]),
        ({"topics": "a"}, ["a"]),
        ({"exclude_topics": "a.*"}, ["b"]),
        ({"topics": "a.*", "exclude_topics": "ab"}, ["a"]),
    ],
)
def test_topics_are_asked_for_by_their_whole_name(
    spark: SparkSession, root: Path, options: dict[str, str], topics: list[str]
) -> None:
    for topic in ("a", "ab", "b"):
        put(root / f"{topic}-0")
    assert sorted(r.topic for r in listed(spark, root, **options)) == topics


def test_links_inside_a_source_are_followed_only_where_asked(spark: SparkSession, root: Path) -> None:
    path, outside = put(root / "a-0"), put(root.parent / "outside" / "b-0")
    (root / "b-0").symlink_to(outside.parent)
    (root / "a-0" / SECOND).symlink_to(put(root.parent / "outside", "any.log"))
    (root / "a-0" / "loop").symlink_to(root)
    (root / "c-0").mkdir()
    (root / "c-0" / FIRST).symlink_to(root / "nowhere")
    assert segments(spark, root) == [str(path)]
    followed = [path, root / "a-0" / SECOND, root / "b-0" / FIRST]
    assert segments(spark, root, follow_symlinks=True) == [str(p) for p in followed]


def test_the_source_itself_may_be_a_link(spark: SparkSession, root: Path) -> None:
    path = put(root / "a-0")
    link = root.parent / "link"
    link.symlink_to(root)
    assert segments(spark, link) == [str(path)]


def test_names_that_hadoop_cannot_read_cost_no_other_file(spark: SparkSession, root: Path) -> None:
    path = put(root / "a-0")
    put(root / "co:lon-0")
    put(root / "a-0", "co:lon.log")
    assert segments(spark, root) == [str(path)]


def test_a_file_that_vanishes_is_left_out(spark: SparkSession, root: Path) -> None:
    path, gone = put(root / "a-0"), put(root / "a-0", SECOND)
    frame = list_segments(spark, str(root))
    gone.unlink()
    assert [r.segment for r in frame.collect()] == [f"file://{path}"]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("{root}/none", "no such path"),
        ("{root}/no*ne", "matches nothing"),
        ("", "is empty"),
        ("{root}", "no segments"),
        ("{root}/a.txt", "no segment"),
        ("nosuch://host/logs", "can't be opened"),
    ],
)
def test_a_source_that_leads_nowhere(spark: SparkSession, root: Path, source: str, said: str) -> None:
    (root / "a.txt").write_text("")
    with pytest.raises(UserError, match=said):
        list_segments(spark, source.replace("{root}", str(root)))


def test_a_bad_regular_expression_is_told_before_anything_is_listed(spark: SparkSession, root: Path) -> None:
    with pytest.raises(UserError, match="--topics"):
        list_segments(spark, str(root), topics="(")
