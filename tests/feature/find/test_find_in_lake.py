"""``find --lake``: the answers of a lake are those of the segments that it was made of."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import pytest

from kafka_log_lake.pipelines import decode_batches
from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.find import command as find
from kafka_log_lake.pipelines.find import lake_search
from kafka_log_lake.pipelines.find.request import make_request
from tests.support import corpus, typed_corpus
from tests.support.drawn import first, part
from tests.support.logs import batch, batches, data, marker, put
from tests.support.plain_search import Condition, read_log, some_conditions

CASES = ("v2-headers", "v2-txn-abort", "v2-txn-open", "v2-nulls", "v1-codec-gzip", "v2-segments")


def rows(**options: Any) -> tuple[list[dict[str, Any]], list[tuple[Any, ...]]]:
    unsearched: list[tuple[Any, ...]] = []

    def note(one: Any) -> None:
        damage = one.damage
        if damage is None:
            unsearched.append((one.name, one.why))
            return
        offsets = (damage.first_lost, damage.last_lost)
        unsearched.append((one.name, damage.segment, damage.position, damage.size, damage.reason, *offsets))

    found = find.find(options.pop("path", ()), on_unsearched=note, cores=1, **options)
    return [row for batch in found for row in batch.to_pylist()], unsearched


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("logs")
    for case in CASES:
        (folder / case).symlink_to(corpus.ROOT / case)
    for hostile in ("bitflip-crc-v2-zstd-0", "batch-length-13-0"):
        (folder / hostile).symlink_to(corpus.ROOT / "hostile" / hostile)
    broken = bytearray(batch(6))
    broken[-1] ^= 1
    put(
        folder / "made" / "a-0",
        0,
        batch(0),
        data(3, 7),
        data(4, 7),
        marker(5, 7, commit=False),
        bytes(broken),
    )
    put(folder / "made" / "a-0", 9, data(9, 7), batch(10, codec=4), data(13, 8))
    put(folder / "made" / "a-1", 0, *batches(0, 5))
    return folder


@pytest.fixture(scope="module")
def made_lake(logs: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    lake = str(tmp_path_factory.mktemp("found") / "lake")
    assert (
        decode_batches.main(["--source", str(logs), "--lake", lake, "--follow-symlinks", "--cores", "1"]) == 0
    )
    return lake


def some(logs: Path) -> list[tuple[list[Condition], dict[str, Any]]]:
    chance, found = random.Random(3), []
    records = [
        record
        for folder in sorted({path.parent.resolve() for path in logs.glob("*/*/*.log")})
        for record in read_log(folder).records
    ]
    for _ in range(part(30)):
        options: dict[str, Any] = {"committed": chance.random() < 0.2, "superseded": chance.random() < 0.2}
        if chance.random() < 0.3:
            options |= {"only": chance.choice(("first", "last")), "limit": chance.choice((1, 3))}
        elif chance.random() < 0.2:
            options["limit"] = chance.choice((1, 7))
        if chance.random() < 0.3:
            options["context"] = chance.choice((1, 2, 5))
        found.append((some_conditions(chance, records), options))
    return found


def test_a_lake_gives_what_its_segments_give(
    logs: Path, made_lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(source=(str(logs),), follow_symlinks=True, cores=1)
    many = 0
    for at, (conditions, options) in enumerate(some(logs)):
        monkeypatch.setattr(lake_search, "_TOGETHER", (0, 500, 1 << 26)[at % 3])
        request = make_request(dict(conditions), **options)
        files = find.search(settings, request)
        lake = find.search(Settings(lake=made_lake), request)
        expected = [row for batch in files for row in batch.to_pylist()]
        assert [row for batch in lake for row in batch.to_pylist()] == expected, (conditions, options)
        assert lake.found == files.found
        if options.get("limit") is None and "since" not in dict(conditions):
            named = [[find.text_of(one) for one in each.unsearched] for each in (files, lake)]
            assert named[0] == named[1], (conditions, options)
        many += len(expected)
    assert many > 50


def test_the_command_over_a_lake(made_lake: str, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert find.main(["--lake", made_lake, "--topics", "a", "--key", "k1", "--count"]) == 0
    assert int(capsysbinary.readouterr().out) == 7
    assert find.main(["--lake", made_lake, "--topics", "a", "--key", "none"]) == 5
    assert b"offsets 6 to 8 may be in it" in capsysbinary.readouterr().err
    assert find.main(["--lake", made_lake, "--topics", "a", "--key", "none", "--partition", "1"]) == 4
    for arguments, said in ((["x"], b"PATH and --topic do not go with --lake"),):
        capsysbinary.readouterr()
        assert find.main(["--lake", made_lake, *arguments]) == 2
        assert said in capsysbinary.readouterr().err
    assert find.main(["--lake", f"{made_lake}/none"]) == 2
    assert find.main(["--key", "x"]) == 2


@pytest.fixture(scope="module")
def typed_lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    lake = str(tmp_path_factory.mktemp("typed") / "lake")
    assert decode_batches.main(["--source", str(typed_corpus.DATA), "--lake", lake, "--cores", "1"]) == 0
    return lake


@pytest.mark.parametrize("topic", first(1, ["pb-kinds", "avro-evolution", "plain-json-odd"]))
def test_typed_values_and_conditions_on_them_are_those_of_the_segments(
    typed_lake: str, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--topics", topic, "--format", "json", "--typed", "--context", "1"]
    sent = (line["value"] for line in typed_corpus.oracle(topic) if isinstance(line.get("value"), dict))
    name, wanted = next(one for value in sent for one in value.items() if type(one[1]) in (str, int))
    for condition in ([], ["--json", f"$['{name}']={wanted}"]):
        answers = []
        for place in ([str(typed_corpus.DATA)], ["--lake", typed_lake]):
            assert find.main([*place, *argv, *condition]) == 0
            answers.append(capsys.readouterr().out)
        assert answers[0] == answers[1]
        assert '"value_typed": ' in answers[0]


def test_one_search_answers_from_one_state_of_the_lake(tmp_path: Path) -> None:
    lake, logs = str(tmp_path / "lake"), tmp_path / "logs"
    arguments = ["--source", str(logs), "--source", str(typed_corpus.DATA), "--lake", lake, "--cores", "1"]
    put(logs / "a-1", 0, batch(0))
    assert decode_batches.main([*arguments, "--topics", "a"]) == 0
    looked = find.search(Settings(lake=lake), make_request({}))
    expected = find.search(Settings(lake=lake), make_request({})).sample("a")
    put(logs / "a-0", 0, batch(0))
    assert decode_batches.main([*arguments, "--topics", "a|_schemas"]) == 0
    assert len(expected) == 3
    assert looked.sample("a") == expected
    assert looked.schemas().schemas == []
    assert [batch.column("partition").to_pylist() for batch in looked] == [[1, 1, 1]]
    later = find.search(Settings(lake=lake, topics="a"), make_request({}))
    assert (len(later.sample("a")), bool(later.schemas().schemas)) == (6, True)


def test_a_topic_is_no_null_whatever_its_name(tmp_path: Path) -> None:
    names = ["NULL", "__HIVE_DEFAULT_PARTITION__", "_a", "null"]
    for name in names:
        put(tmp_path / "logs" / f"{name}-0", 0, batch(0))
    lake = str(tmp_path / "lake")
    assert decode_batches.main(["--source", str(tmp_path / "logs"), "--lake", lake, "--cores", "1"]) == 0
    found, _ = rows(lake=lake, key="k1")
    assert [row["topic"] for row in found] == names


def test_damage_before_a_wrong_base_offset_hides_no_more_than_in_the_segments(tmp_path: Path) -> None:
    broken = bytearray(batch(3))
    broken[-1] ^= 1
    wrong = (1 << 40).to_bytes(8, "big") + batch(6)[8:]  # no checksum covers a base offset
    put(tmp_path / "logs" / "a-0", 0, batch(0), bytes(broken), wrong, batch(9))
    lake = str(tmp_path / "lake")
    assert decode_batches.main(["--source", str(tmp_path / "logs"), "--lake", lake, "--cores", "1"]) == 0
    found, unsearched = rows(lake=lake, key="k1", superseded=True)
    assert None not in [row["superseded"] for row in found if row["offset"] > 8]
    assert [one[-2:] for one in unsearched] == [(3, 8)]
    assert (found, unsearched) == rows(path=str(tmp_path / "logs"), key="k1", superseded=True)


def test_offsets_before_a_segment_that_begins_with_damage_could_not_be_searched(tmp_path: Path) -> None:
    broken = bytearray(batch(20))
    broken[-1] ^= 1
    put(tmp_path / "logs" / "t-0", 0, *batches(0, 5))
    put(tmp_path / "logs" / "t-0", 20, bytes(broken), *batches(21, 2))
    lake = str(tmp_path / "lake")
    decode_batches.main(["--source", str(tmp_path / "logs"), "--lake", lake, "--cores", "1"])
    _, of_segments = rows(path=str(tmp_path / "logs"), key="k1")
    _, of_lake = rows(lake=lake, key="k1")
    assert [unsearched[-2:] for unsearched in of_segments] == [(15, 20)]
    assert of_lake == of_segments


def test_no_offset_is_missing_after_the_highest_one(tmp_path: Path) -> None:
    end = 2**63 - 1
    put(tmp_path / "logs" / "t-0", end - 2, batch(end - 2), batch(5))
    lake = str(tmp_path / "lake")
    assert decode_batches.main(["--source", str(tmp_path / "logs"), "--lake", lake, "--cores", "1"]) == 0
    wanted = {"offset": str(end - 1)}
    assert rows(path=str(tmp_path / "logs"), **wanted) == rows(lake=lake, **wanted)


def test_offsets_that_no_segment_has_could_not_be_searched(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Over segments and over their lake. A log that was compacted lacks offsets, and no segment."""
    for topic, compacted in (("lost", ()), ("compacted", (batch(15, last_offset_delta=9),))):
        put(tmp_path / "logs" / f"{topic}-0", 0, batch(0, records=6))
        put(tmp_path / "logs" / f"{topic}-0", 9, batch(9))
        put(tmp_path / "logs" / f"{topic}-0", 12, batch(12), *compacted)
    lake = str(tmp_path / "lake")
    assert decode_batches.main(["--source", str(tmp_path / "logs"), "--lake", lake, "--cores", "1"]) == 0
    capsysbinary.readouterr()
    lost = "lost-0: offsets 6 to 8 could not be searched: no segment has them"
    for place in ([str(tmp_path / "logs")], ["--lake", lake]):
        for conditions, code in (
            ("--key none", 5),
            ("--offset 7", 5),
            ("--key none --offset 3:7", 5),
            ("--key none --offset 0:6", 4),
            ("--key none --offset 9:", 4),
            ("--key none --since 2000-01-01T00:00:00Z", 5),
            ("--key none --since 2100-01-01T00:00:00Z", 5),
            ("--key k1", 0),
        ):
            assert find.main([*place, *conditions.split(), "--cores", "1"]) == code, (place, conditions)
            warnings = [
                one for one in capsysbinary.readouterr().err.decode().splitlines() if "warning" in one
            ]
            assert warnings == ([] if code == 4 else [f"warning: {lost}"]), (place, conditions)
    for searched in ({"path": str(tmp_path / "logs" / "lost-0")}, {"lake": lake, "topics": "lost"}):
        found, _ = rows(**searched, key="k4", superseded=True)
        assert [row["superseded"] for row in found] == [None], "a later one may be in the missing segment"
        assert [row["superseded"] for row in rows(**searched, key="k1", superseded=True)[0]] == [True] * 2 + [
            False
        ]


def test_a_segment_that_is_passed_over_may_end_past_the_last_offset(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Over segments and over their lake. The last offset of the batch is above int64."""
    wrong = (2**63 - 1).to_bytes(8, "big") + batch(3)[8:]
    put(tmp_path / "logs" / "a-0", 0, batch(0), wrong)
    put(tmp_path / "logs" / "a-0", 50, batch(50))
    lake = str(tmp_path / "lake")
    assert decode_batches.main(["--source", str(tmp_path / "logs"), "--lake", lake, "--cores", "1"]) == 0
    capsysbinary.readouterr()
    for place in ([str(tmp_path / "logs")], ["--lake", lake]):
        for conditions, code in (("", 4), ("--offset 7", 5)):
            argv = [*place, "--since", "2100-01-01", *conditions.split(), "--cores", "1"]
            assert find.main(argv) == code, (argv, capsysbinary.readouterr().err)


def test_offsets_whose_records_are_under_wrong_offsets_could_not_be_searched(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Over segments and over their lake. A search by key finds the records and says so."""
    wrong = (1 << 40).to_bytes(8, "big") + batch(3)[8:]  # no checksum covers a base offset
    put(tmp_path / "logs" / "a-0", 0, batch(0), wrong, batch(6))
    lake = str(tmp_path / "lake")
    assert decode_batches.main(["--source", str(tmp_path / "logs"), "--lake", lake, "--cores", "1"]) == 0
    for place in ([str(tmp_path / "logs")], ["--lake", lake]):
        for conditions, code in (("--offset 4", 5), ("--offset 4:9", 0), ("--offset 6:", 0), ("--key k1", 0)):
            capsysbinary.readouterr()
            assert find.main([*place, *conditions.split(), "--cores", "1"]) == code, (place, conditions)
            not_searched = b"offsets 3 to 5 could not be searched: a batch has a wrong base offset"
            elsewhere = b"the records of offsets 3 to 5 lie under other offsets: a batch has a wrong base"
            said = not_searched if "4" in conditions else elsewhere
            said = b"warning: a-0: " + said
            assert capsysbinary.readouterr().err.count(said) == 1, (place, conditions)
    for searched in ({"path": str(tmp_path / "logs")}, {"lake": lake}):
        assert None not in [row["superseded"] for row in rows(**searched, offset="0:5", superseded=True)[0]]


def test_what_was_left_out_may_hold_a_later_record_of_the_key(tmp_path: Path) -> None:
    put(tmp_path / "logs" / "a-0", 0, batch(0))
    put(tmp_path / "logs" / "a-0", 3, batch(3))
    put(tmp_path / "logs" / "a-0", 6, batch(6))
    for kept, expected in ((":3", [None]), ("3:6", [None]), ("6:", [False])):
        lake = str(tmp_path / f"lake{kept}")
        arguments = ["--source", str(tmp_path / "logs"), "--lake", lake, "--offsets", kept, "--cores", "1"]
        assert decode_batches.main(arguments) == 0
        found = find.find(lake=lake, key="k1", superseded=True, on_unsearched=lambda one: None)
        assert [one for each in found for one in each.column("superseded").to_pylist()] == expected


def test_what_was_left_out_could_not_be_searched(tmp_path: Path) -> None:
    put(tmp_path / "logs" / "a-0", 0, batch(0), batch(3))
    lake = str(tmp_path / "lake")
    arguments = ["--source", str(tmp_path / "logs"), "--lake", lake, "--offsets", "3:", "--cores", "1"]
    assert decode_batches.main(arguments) == 0
    assert find.main(["--lake", lake, "--key", "none"]) == 5
    with pytest.raises(UserError, match="name what to search"):
        list(find.find())


def test_small_logs_are_searched_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those of topics: a statement a log took minutes over a lake of 1,000 partitions."""
    broken = batch(3)[:-1] + b"\1"
    logs = [("a", 0), ("a", 1), ("it's", 1), ("it's", 3), *(("z", partition) for partition in range(8))]
    for topic, partition in logs:
        put(tmp_path / "logs" / f"{topic}-{partition}", 0, batch(0), broken, batch(6))
    lake = str(tmp_path / "lake")
    assert decode_batches.main(["--source", str(tmp_path / "logs"), "--lake", lake, "--cores", "1"]) == 0
    statements: list[str] = []
    read = lake_search.LakeSearch._read

    def counted(self: Any, columns: Any, source: str, *others: Any) -> Any:
        statements.append(source)
        return read(self, columns, source, *others)

    monkeypatch.setattr(lake_search.LakeSearch, "_read", counted)
    found, unsearched = rows(lake=lake, key="k1")
    places = [(row["topic"], row["partition"], row["offset"]) for row in found]
    assert sorted(places) == [(*log, offset) for log in logs for offset in (1, 7)]
    assert [one[-2:] for one in unsearched] == [(3, 5)] * 12
    assert len(statements) < 4


def test_the_package_that_a_lake_needs_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "kafka_log_lake.pipelines.find.lake_search", raising=False)
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert find.main(["--lake", "lake", "--key", "x"]) == 2
    assert capsys.readouterr().err == (
        "error: --lake needs duckdb: in a clone, pip install '.[sql]', "
        "or uvx --from '.[sql]' kafka-log-lake\n"
    )


@pytest.mark.parametrize(
    ("file", "lines", "after", "first"),
    [
        ("a-0/leader-epoch-checkpoint", "0 0", b"", "offsets 0 to 5"),  # the first segment is lost
        ("replication-offset-checkpoint", "a 0 15", b"", "offsets 9 to 14"),
        ("x", "", batch(9)[:-3], "offsets 9 to the end"),
        ("x", "", bytes(300), "offsets 9 to the end"),
        ("x", "", b"", None),
    ],
)
def test_what_a_lake_knows_to_be_missing_was_not_searched(
    tmp_path: Path, file: str, lines: str, after: bytes, first: str | None
) -> None:
    put(tmp_path / "logs" / "a-0", 6, batch(6), after)
    (tmp_path / "logs" / file).write_text(f"0\n1\n{lines}\n")
    lake = str(tmp_path / "lake")
    assert decode_batches.main(["--source", str(tmp_path / "logs"), "--lake", lake]) == 0
    found, unsearched = rows(lake=lake, key="none")
    assert not found
    assert [name for name, _ in unsearched] == ([f"a-0: {first}"] if first else [])
