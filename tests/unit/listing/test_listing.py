"""What a listing finds, whatever folders and files are called: real files."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.listing import naming
from kafka_log_lake.pipelines.listing.list_segments import list_segments
from kafka_log_lake.pipelines.listing.listing import Listing
from kafka_log_lake.pipelines.listing.uris import escape
from tests.support.processes import as_anybody

ROOT = Path(__file__).resolve().parents[3]
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


def listing_of(*sources: Path | str, **options: Any) -> Listing:
    return list_segments([str(s) for s in sources], **options)


def listed(*sources: Path | str, **options: Any) -> list[dict[str, Any]]:
    """Rows of what was requested."""
    found = listing_of(*sources, **options).segments.to_pylist()
    return sorted((row for row in found if row["wanted"]), key=lambda row: row["segment"])


def segments(*sources: Path | str, **options: Any) -> list[str]:
    """Their paths, without a scheme."""
    return [row["segment"].removeprefix("file://") for row in listed(*sources, **options)]


@pytest.mark.parametrize("depth", ["", "deep/er"])
def test_every_name_of_a_folder_is_found_as_it_is(root: Path, depth: str) -> None:
    paths = {str(put(root / depth / name)): (topic, partition) for name, topic, partition in NAMES}
    found = {r["segment"]: (r["topic"], r["partition"]) for r in listed(root)}
    assert found == {f"file://{path}": place for path, place in paths.items()}


def test_every_name_may_be_a_source_itself(root: Path) -> None:
    folders = [root / name for name, _, _ in NAMES]
    paths = [str(put(folder)) for folder in folders]
    put(root / "other-0")
    assert segments(*folders) == sorted(paths)
    assert segments(*paths) == sorted(paths)


def test_columns_of_a_segment(root: Path) -> None:
    path = put(root / "a-3", SECOND, size=7)
    (row,) = listed(root)
    assert row["partition_dir"] == f"file://{root}/a-3"
    assert (row["topic"], row["partition"], row["file_base_offset"], row["length"]) == ("a", 3, 100, 7)
    assert row["modified"] == path.stat().st_mtime_ns // 1000
    assert (row["has_successor"], row["log_start_offset"], row["topic_id"]) == (False, 100, None)


def test_a_folder_knows_its_topic_id_and_where_its_log_starts(root: Path) -> None:
    put(root / "a-0", FIRST)
    put(root / "a-0", SECOND)
    (root / "a-0" / "partition.metadata").write_text("version: 0\ntopic_id: 8hB4dKVURQ6jZBfXPsHqMQ")
    assert [(r["topic_id"], r["log_start_offset"]) for r in listed(root)] == [
        ("8hB4dKVURQ6jZBfXPsHqMQ", 0)
    ] * 2


def test_a_segment_knows_its_successor_in_its_own_folder_alone(root: Path) -> None:
    for name in (FIRST, SECOND):
        put(root / "a-0", name)
    put(root / "b-0", FIRST)
    found = {r["segment"].rpartition("/a-0/")[2]: r["has_successor"] for r in listed(root / "a-0")}
    assert found == {FIRST: True, SECOND: False}
    assert not listed(root / "b-0")[0]["has_successor"]


def test_a_file_named_alone_knows_its_successor(root: Path) -> None:
    put(root / "a-0", SECOND)
    (row,) = listed(put(root / "a-0", FIRST))
    assert row["has_successor"]


def test_files_that_the_broker_left_next_to_segments_are_counted(root: Path) -> None:
    put(root / "a-0")
    for name in (
        "00000000000000000000.log.swap",
        "00000000000000000005.log.cleaned",
        "00000000000000000005.log.deleted",
        "00000000000000000006.log.deleted",
        "00000000000000000000.index.swap",
        "notes.log.swap",
    ):
        (root / "a-0" / name).write_bytes(b"x")
    assert list_segments(str(root)).skipped == {naming.SWAP: 1, naming.CLEANED: 1, naming.TO_DELETE: 2}


def test_overlapping_sources_count_a_file_once(root: Path) -> None:
    path = put(root / "a-0")
    overlapping: list[Path | str] = [
        root,
        root / "a-0",
        path,
        f"file:{root}",
        f"{root}/../{root.name}/a-0/",
        escape(f"{root}/") + "*",
    ]
    assert segments(*overlapping) == [str(path)]


def test_globs_match_folders_and_files(root: Path) -> None:
    first, other = put(root / "a-0"), put(root / "b-0")
    second = put(root / "a-0", SECOND)
    at = escape(str(root))
    assert segments(at + "/a-*") == [str(first), str(second)]
    assert segments(at + "/{a,b}-0/*0.log") == sorted(map(str, (first, second, other)))
    assert segments(at + f"/*/{SECOND}") == [str(second)]


def test_sources_may_lie_next_to_each_other(root: Path) -> None:
    first, second = put(root / "one" / "a-0"), put(root / "two" / "a-0")
    put(root / "three" / "a-0")
    assert segments(root / "one", root / "two") == [str(first), str(second)]


SKIPPED = {
    ("a-0.3f2a-delete", FIRST): naming.DELETED,
    ("a-0.3f2a-stray", FIRST): naming.STRAY,
    ("a-0.3F2A-future", FIRST): naming.FUTURE,
    ("logs", FIRST): naming.NO_PARTITION,
    ("a-0\n", FIRST): naming.NO_PARTITION,
    ("a-0", "server.log"): naming.NO_SEGMENT,
    ("a-0", "1.log"): naming.NO_SEGMENT,
    ("a-2147483648", FIRST): naming.PARTITION_TOO_BIG,
    ("a-0", "9" * 20 + ".log"): naming.OFFSET_TOO_BIG,
    (f"{'t' * 250}-0", FIRST): naming.TOPIC_TOO_LONG,
    (f"{'%' * 84}-0", FIRST): naming.TOPIC_TOO_LONG,
    (os.fsdecode(b"t\xff-0"), FIRST): naming.NOT_TEXT,
    (f"{'t' * 249}-0", FIRST): None,
    (f"{'%' * 83}-0", FIRST): None,
    ("__HIVE_DEFAULT_PARTITION__-0", FIRST): None,
}


@pytest.mark.parametrize(("place", "reason"), SKIPPED.items(), ids=repr)
def test_a_file_that_is_not_a_segment_is_counted_by_its_reason(
    root: Path, place: tuple[str, str], reason: str | None
) -> None:
    put(root / place[0], place[1])
    found = listing_of(root)
    assert (found.skipped, found.segments.num_rows) == (({reason: 1}, 0) if reason else ({}, 1))


def test_a_topic_that_spark_would_write_as_null_is_skipped_for_its_sink(root: Path) -> None:
    put(root / "__HIVE_DEFAULT_PARTITION__-0")
    assert listing_of(root, null_topic=False).skipped == {naming.NULL_TO_SPARK: 1}


def test_what_lies_next_to_segments_is_not_listed(root: Path) -> None:
    path = put(root / "a-0")
    for suffix in (".index", ".timeindex", ".log.deleted", ".log.cleaned", ".log.swap", ".snapshot"):
        put(root / "a-0", "0" * 20 + suffix)
    assert segments(root) == [str(path)]


@pytest.mark.parametrize(
    ("options", "topics"),
    [
        ({"topics": "a|ab"}, ["a", "ab"]),
        ({"topics": "a"}, ["a"]),
        ({"exclude_topics": "a.*"}, ["b"]),
        ({"topics": "a.*", "exclude_topics": "ab"}, ["a"]),
    ],
)
def test_topics_are_requested_by_their_whole_name(
    root: Path, options: dict[str, str], topics: list[str]
) -> None:
    for topic in ("a", "ab", "b"):
        put(root / f"{topic}-0")
    assert sorted(r["topic"] for r in listed(root, **options)) == topics


def test_links_inside_a_source_are_followed_only_where_requested(root: Path) -> None:
    path, outside = put(root / "a-0"), put(root.parent / "outside" / "b-0")
    (root / "b-0").symlink_to(outside.parent)
    (root / "a-0" / SECOND).symlink_to(put(root.parent / "outside", "any.log"))
    (root / "a-0" / "loop").symlink_to(root)
    (root / "c-0").mkdir()
    (root / "c-0" / FIRST).symlink_to(root / "nowhere")
    os.mkfifo(root / "c-0" / SECOND)
    (root / "d-0").mkdir()
    os.mkfifo(root.parent / "pipe")
    (root / "d-0" / FIRST).symlink_to(root.parent / "pipe")
    assert segments(root) == [str(path)]
    skipped = list_segments(str(root)).skipped
    assert skipped == {naming.LINK: 4, naming.SPECIAL: 1}
    assert naming.unlooked_texts(skipped) == ["4 symbolic links", "1 special file"]
    skipped = list_segments(str(root), follow_symlinks=True).skipped
    assert skipped == {naming.BROKEN_LINK: 1, naming.SPECIAL: 2}
    followed = [path, root / "a-0" / SECOND, root / "b-0" / FIRST]
    assert segments(root, follow_symlinks=True) == [str(p) for p in followed]


def test_the_source_itself_may_be_a_link(root: Path) -> None:
    path = put(root / "a-0")
    link = root.parent / "link"
    link.symlink_to(root)
    assert segments(link) == [str(path)]


def test_a_link_to_itself_is_passed_over(root: Path) -> None:
    path = put(root / "a-0")
    (root / "self").symlink_to("self")
    (root / "a-0" / SECOND).symlink_to(root / "a-0" / SECOND)
    assert segments(root, follow_symlinks=True) == [str(path)]


def test_of_several_links_to_one_folder_the_shortest_is_taken(root: Path) -> None:
    outside = put(root.parent / "outside" / "a-0").parent
    for name in ("long-name-0", "b-0", "c-0"):
        (root / name).symlink_to(outside)
    assert segments(root, follow_symlinks=True) == [str(root / "b-0" / FIRST)]


def test_names_with_a_colon_are_names_like_any(root: Path) -> None:
    paths = [put(root / "a-0"), put(root / "co:lon-0"), put(root / "x:y" / "b-0")]
    assert segments(root) == sorted(map(str, paths))
    assert segments(root / "co:lon-0") == [str(paths[1])]


def test_folders_called_like_files_and_partitions_are_folders(root: Path) -> None:
    """As a broker of Kafka Connect has them: ``connect.log``, and ``a=1`` in it."""
    paths = [put(root / "a-0"), put(root / "connect.log" / "a=1" / "b-0"), put(root / "connect.log")]
    assert segments(root) == sorted(map(str, paths[:2]))


def test_a_folder_and_a_file_that_are_closed_to_us_stop_no_other(root: Path) -> None:
    path, closed = put(root / "a-0"), put(root / "b-0").parent
    look = (
        "import json, sys; from kafka_log_lake.pipelines.listing.list_segments import list_segments\n"
        "found = list_segments(sys.argv[1])\n"
        "print(json.dumps([found.segments.column('segment').to_pylist(), found.skipped, found.unreadable]))"
    )
    closed.chmod(0)
    try:
        done = subprocess.run(as_anybody("-c", look, str(root)), cwd=ROOT, capture_output=True, text=True)
    finally:
        closed.chmod(0o755)
    printed = [f"file://{path}"], {naming.UNREADABLE_FOLDER: 1}, {f"file://{closed}": "Permission denied"}
    assert json.loads(done.stdout) == list(printed)


def test_a_file_that_vanishes_while_it_is_listed_is_left_out(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, gone = put(root / "a-0"), put(root / "a-0", SECOND)
    stat = os.stat

    def vanishing(name: Any, *rest: Any, **options: Any) -> os.stat_result:
        if str(name) == str(gone):
            gone.unlink()
        return stat(name, *rest, **options)

    monkeypatch.setattr(os, "stat", vanishing)
    assert segments(root) == [str(path)]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("{root}/none", "no such path"),
        ("{root}/no*ne", "matches nothing"),
        ("", "is empty"),
        ("{root}", "no segments"),
        ("{root}/a.txt", "is not a segment"),
        ("nosuch://host/logs", "without Spark"),
    ],
)
def test_a_source_that_leads_nowhere(root: Path, source: str, said: str) -> None:
    (root / "a.txt").write_text("")
    with pytest.raises(UserError, match=said):
        list_segments(source.replace("{root}", str(root)))


@pytest.mark.parametrize("topics", [r"\p{Lu}.*", r"\p{Alpha}+", "(?!__).*"])
def test_topics_may_be_named_as_java_and_perl_do(root: Path, topics: str) -> None:
    paths = [put(root / "Ab-0")]
    put(root / "__b1-0")
    assert segments(root, topics=topics) == [str(p) for p in paths]


def test_a_bad_regular_expression_is_reported_before_anything_is_listed(root: Path) -> None:
    with pytest.raises(UserError, match="--topics"):
        list_segments(str(root), topics="(")


def test_nested_folders_are_resolved_once_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Resolving every path from its root looks at each folder as often as there are folders in it."""
    deep = tmp_path
    for _ in range(150):
        deep /= "d"
    (deep / "t-0").mkdir(parents=True)
    (deep / "t-0" / f"{0:020d}.log").write_bytes(b"")
    looked: list[object] = []
    lstat = os.lstat

    def counted(*args: Any, **names: Any) -> os.stat_result:
        looked.append(args)
        return lstat(*args, **names)

    monkeypatch.setattr(os, "lstat", counted)
    listing = list_segments(str(tmp_path))
    assert listing.segments.num_rows == 1
    assert len(looked) < 1000
