"""``scan``: what an on-call engineer asks first, from files whose content is known otherwise."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.scan import command, losses, report
from kafka_log_lake.pipelines.scan.command import scan
from kafka_log_lake.pipelines.scan.losses import next_steps
from kafka_log_lake.pipelines.scan.report_json import to_json
from tests.support import corpus, typed_corpus
from tests.support.as_command import decode
from tests.support.logs import batch, batches, data, put
from tests.support.scanned import HOUR, NOW, found, log_of
from tools.picture import on_a_terminal

ROOT = Path(__file__).parents[3]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kafka_log_lake", "scan", *arguments]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, timeout=120
    )


def test_the_time_of_a_scan_is_not_that_of_compiling_the_decoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "t-0", 0, batch(0))
    clock = [0.0]

    def compile_all() -> None:
        clock[0] += 60

    monkeypatch.setattr(command, "ensure_compiled", compile_all)
    monkeypatch.setattr(command, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    assert scan(tmp_path).seconds == 0
    assert clock == [60]


def test_the_next_command_says_what_it_needs_where_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "t-0", 0, batch(0))
    findings = scan(tmp_path)
    assert "clone" not in next_steps(findings)[0]
    monkeypatch.setattr(losses, "find_spec", lambda name: None)
    assert next_steps(findings)[0].endswith(
        "tables; before it, in a clone, pip install '.[spark]', or uvx --from '.[spark]' kafka-log-lake"
    )


def broken(batch: bytes) -> bytes:
    """A batch with one wrong bit in its last byte."""
    return batch[:-1] + bytes([batch[-1] ^ 1])


def test_counts_are_those_of_kafka_s_own_library() -> None:
    expected: dict[str, list[int]] = {}
    for path in corpus.segments():
        lines = [line for line in corpus.oracle_batches(path) if "position" in line]
        counts = expected.setdefault(f"file://{path.parent}", [0, 0, 0])
        counts[0] += path.stat().st_size
        counts[1] += len(lines)
        counts[2] += len([line for line in corpus.oracle_records(path) if "offset" in line])
    findings = found(corpus.ROOT, cores=2)
    hostile = f"file://{corpus.ROOT}/hostile/"
    printed = {log.partition_dir: log for log in findings.logs if not log.partition_dir.startswith(hostile)}
    for folder, counts in expected.items():
        log = printed[folder]
        assert [log.bytes, log.batches, log.records + log.control_records] == counts, folder
        assert not log.damages


def test_topics_times_and_formats(tmp_path: Path) -> None:
    put(tmp_path / "a-0", 0, batch(0, base_timestamp=NOW), batch(3, codec=4, base_timestamp=NOW + HOUR))
    put(tmp_path / "a-0", 6, batch(6, base_timestamp=NOW + 2 * HOUR))
    log = log_of(tmp_path)
    assert (log.topic, log.partition, log.segments, log.records) == ("a", 0, 2, 9)
    assert (log.first_offset, log.last_offset) == (0, 8)
    assert (log.first_timestamp, log.last_timestamp) == (NOW, NOW + 2 * HOUR)
    assert {key: count.batches for key, count in log.formats.items()} == {(2, "none"): 2, (2, "zstd"): 1}


def test_keys_and_values_are_named_with_their_schemas_and_the_share_that_decodes() -> None:
    topics = ("avro-key-long", "err-avro", "kv-avro-pb")
    findings = found(typed_corpus.DATA, topics="|".join(topics))
    formats = {(one.topic, one.side, one.format): one for one in findings.payloads}
    for topic in topics:
        lines = [line for line in typed_corpus.oracle(topic) if line["value_format"] in ("avro", "protobuf")]
        (value,) = (
            one for place, one in formats.items() if place[:2] == (topic, "value") and place[2] != "bytes"
        )
        assert value.format == lines[0]["value_format"]
        sent = {line["value_schema"]["id"] for line in lines if "value_schema" in line}
        errors = {line["error"] for line in lines if "error" in line}
        assert set() < set(value.schema_ids) <= sent
        assert set(value.reasons) <= errors
        assert bool(value.reasons) == bool(errors)
        assert value.payloads == min(500, len(lines))
    key = formats["avro-key-long", "key", "avro"]
    text = "\n".join(report.to_text(findings))
    assert re.search(rf"avro-key-long +avro by schema {key.schema_ids[0]} +avro by schema \d+", text)
    assert re.search(r"err-avro .*avro by schema.*; [0-9.]+% decode", text)
    listed = to_json(findings)["payloads"]
    assert {(one["topic"], one["side"], one["format"]) for one in listed} == formats.keys()


def test_damage_reports_the_lost_offsets_and_where_to_go_on(tmp_path: Path) -> None:
    put(tmp_path / "a-0", 0, batch(0), broken(batch(3)), batch(6), broken(batch(9)))
    put(tmp_path / "a-0", 12, batch(12))
    log = log_of(tmp_path)
    printed = [(d.reason, d.first_lost, d.last_lost, d.next_offset) for d in log.damages]
    assert printed == [("crc_mismatch", 3, 5, 6), ("crc_mismatch", 9, 11, 12)]
    steps = "\n".join(next_steps(found(tmp_path)))
    assert "--topic a:0 --reset-offsets --to-offset 6 --execute" in steps
    assert "--topic a:0 --reset-offsets --to-offset 12 --execute" in steps


def test_damage_at_the_end_of_the_log_has_no_next_offset(tmp_path: Path) -> None:
    put(tmp_path / "a-0", 0, batch(0), broken(batch(3)))
    (damage,) = log_of(tmp_path).damages
    assert (damage.first_lost, damage.last_lost, damage.next_offset) == (3, None, None)


def test_damage_that_cost_no_offset_says_so(tmp_path: Path) -> None:
    put(tmp_path / "a-0", 0, batch(0), b"\xee" * 50, batch(3))
    (damage,) = log_of(tmp_path).damages
    assert (damage.first_lost, damage.last_lost, damage.next_offset) == (None, None, 3)


def test_tails_copies_and_skipped_files(tmp_path: Path) -> None:
    put(tmp_path / "one" / "a-0", 0, batch(0), batch(3)[:30])
    put(tmp_path / "two" / "a-0", 0, batch(0), bytes(100))
    put(tmp_path / "two" / "b-0.0123abcd-delete", 0, batch(0))
    findings = found(tmp_path)
    assert [(log.tail, log.tail_bytes) for log in findings.logs] == [("torn", 30), ("zeros", 100)]
    assert [len(logs) for logs in findings.copies.values()] == [2]
    assert dict(findings.skipped) == {"folder -delete": 1}
    assert not findings.is_damaged


def test_slices_and_processes_find_the_same(tmp_path: Path) -> None:
    inner = b"".join(batches(1000, 40, text="inner"))
    put(
        tmp_path / "a-0",
        0,
        *batches(0, 20),
        broken(batch(60)),
        batch(63, text="x" + inner.decode("latin-1")),
        *batches(66, 30, codec=2),
        data(156, 7),
        b"\xee" * 300,
        batch(157),
    )
    put(tmp_path / "b-0", 0, *batches(0, 3))
    whole, sliced = found(tmp_path), found(tmp_path, slice_bytes=500, cores=2)
    assert whole.logs[0].damages
    assert sliced.logs == whole.logs


def test_a_large_batch_is_counted_whole(tmp_path: Path) -> None:
    put(tmp_path / "a-0", 0, batch(0, records=200_000, codec=4))
    assert log_of(tmp_path).records == 200_000


def test_nothing_is_written_and_no_java_is_needed(tmp_path: Path) -> None:
    logs, here = tmp_path / "logs", tmp_path / "here"
    put(logs / "a-0", 0, *batches(0, 3))
    here.mkdir()
    before = sorted(tmp_path.rglob("*"))
    done = run(str(logs), JAVA_HOME="/nonexistent", PATH="/nonexistent", PYTHONDONTWRITEBYTECODE="1")
    assert done.returncode == 0, done.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_text_for_a_pipe_and_one_object_for_a_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path / "a-0", 0, batch(0), broken(batch(3)), batch(6))
    done = run(str(tmp_path), "--fail-on-damage")
    assert done.returncode == 3
    assert "\x1b" not in done.stdout
    assert "1 segment of 1 topic," in done.stdout
    assert "3 to 5" in done.stdout
    verdict = done.stdout.splitlines()[-1]
    assert verdict.startswith("verdict: not sound: 1 segment (")
    assert verdict.endswith("1 damaged range (94 bytes); lost: at most 3 offsets in damage")
    assert done.stderr == (
        "there is damage, or a file that can't be read: exit code 3, because of --fail-on-damage\n"
    )
    assert command.main([str(tmp_path), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["segments"], printed["records"], printed["damaged"]) == (1, 6, 1)
    assert printed["logs"][0]["damages"][0]["next_offset"] == 6
    assert f"verdict: {printed['verdict']}" == verdict


def test_a_table_on_a_terminal_holds_the_same(tmp_path: Path) -> None:
    put(tmp_path / "a-0", 0, batch(0), broken(batch(3)), batch(6))
    text = on_a_terminal(tmp_path, "scan", str(tmp_path))
    assert "\x1b[" in text
    assert "┃" in text or "│" in text
    assert "crc_mismatch" in text


@pytest.mark.parametrize("hostile", ["\x1b]0;owned\x07", "\u202eevil"])
def test_names_cannot_drive_the_terminal(
    tmp_path: Path, hostile: str, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path / f"{hostile}-0", 0, batch(0), broken(batch(3)))
    assert command.main([str(tmp_path)]) == 0
    assert not set(capsys.readouterr().out) & set("\x1b\x07\u202e")


def test_no_segment_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match="no segments"):
        found(tmp_path)
    assert command.main([str(tmp_path / "nothing")]) == 2
    assert tuple(capsys.readouterr()) == ("", f"error: no such path: {tmp_path}/nothing\n")


def test_offsets_of_a_segment_that_is_there_and_was_not_requested_are_not_missing(tmp_path: Path) -> None:
    first, _, last, later = (put(tmp_path / "a-0", base, batch(base)) for base in (0, 3, 6, 12))
    assert scan(first).missing == []
    assert scan(Settings(source=(str(first), str(last)), cores=1)).missing == []
    ((_, one),) = scan(Settings(source=(str(first), str(last), str(later)), cores=1)).missing
    assert (one.first, one.last) == (9, 11)


def test_offsets_that_no_segment_has_are_reported(tmp_path: Path) -> None:
    put(tmp_path / "a-0", 0, batch(0))
    put(tmp_path / "a-0", 3)  # lost its bytes
    put(tmp_path / "a-0", 9, batch(9))
    put(tmp_path / "a-0", 20, batch(20), broken(batch(23)))
    put(tmp_path / "a-0", 30, batch(30))  # 23 to 29 may be in the damage
    put(tmp_path / "a-0", 33)  # just rolled
    put(tmp_path / "compacted-0", 0, batch(0), batch(5))
    put(tmp_path / "compacted-0", 20, batch(20))
    findings = found(tmp_path)
    assert [(log.topic, one.first, one.last, one.why) for log, one in findings.missing] == [
        ("a", 3, 8, "1 segment without a batch"),
        ("a", 12, 19, "no segment has them"),
    ]
    text = list(report.to_text(findings))
    assert text[-1].endswith("lost: at most 7 offsets in damage, 14 offsets in no segment")
    printed = to_json(findings)["logs"][0]["missing"][0]
    expected = {"first": 3, "last": 8, "empty": 1, "cause": "missing_segment", "seek_to": 9}
    assert expected.items() <= printed.items()


def test_the_verdict_of_a_sound_log_says_what_was_checked(tmp_path: Path) -> None:
    put(tmp_path / "a-0", 0, batch(0))
    *_, last = report.to_text(found(tmp_path))
    assert re.fullmatch(
        r"verdict: sound: 1 segment \(\d+ B\) checked; nothing is damaged, nothing is lost", last
    )


def last_lines(logs: Path) -> tuple[str, str]:
    """The lines of next steps, and the verdict."""
    *_, comment, command, verdict = report.to_text(found(logs))
    return f"{comment}\n{command}", verdict


def test_a_segment_of_zeros_has_a_loss_and_a_next_step(tmp_path: Path) -> None:
    put(tmp_path / "a-0", 0, bytes(5000))
    step, verdict = last_lines(tmp_path)
    assert "0% of the bytes are sound; 1 log of nothing but zeros; lost: an unknown number" in verdict
    assert "has no sound batch from offset 0" in step.replace("this copy ", "")
    assert "scan REPLICA/a-0" in step


def test_a_segment_of_zeros_within_a_log_is_not_sound(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    put(logs / "a-0", 0, batch(0))
    put(logs / "a-0", 3, bytes(5000))
    put(logs / "a-0", 9, batch(9))
    put(logs / "a-0", 12, bytes(100))  # preallocated, nothing was written yet
    fault = "1 segment of nothing but zeros (5,000 bytes); lost: 6 offsets in no segment"
    verdict = last_lines(logs)[1]
    assert fault in verdict
    assert 0 < float(re.findall(r"([\d.]+)% of the bytes", verdict)[0]) < 10
    summary = decode(None, Settings(source=(str(logs),), lake=str(tmp_path / "lake")))
    assert fault in summary.verdict_line()


def test_a_torn_tail_names_the_offsets_that_its_header_claims(tmp_path: Path) -> None:
    put(tmp_path / "a-0", 0, batch(0), batch(3, records=40)[:-5])
    step, verdict = last_lines(tmp_path)
    assert "1 incomplete last batch (" in verdict
    assert verdict.startswith("verdict: incomplete: ")
    assert verdict.endswith("which claims 40 offsets), still being written or cut off")
    assert "offset 3 of a-0" in step
    assert "offsets 3 to 42, unless the broker is still writing them" in "\n".join(
        report.to_text(found(tmp_path))
    )
    put(tmp_path / "a-0", 0, batch(0), batch(3)[:20])
    assert last_lines(tmp_path)[1].endswith(
        "1 incomplete last batch (20 bytes), still being written or cut off"
    )
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\na 0 6\n")
    assert last_lines(tmp_path)[1].startswith("verdict: not sound: ")
    assert "lost: 3 offsets in no segment" in last_lines(tmp_path)[1]


def test_a_last_batch_far_behind_the_others_is_not_called_sound(tmp_path: Path) -> None:
    put(tmp_path / "a-0", 0, batch(0), batch(3), batch(6 + (1 << 40)))
    verdict = last_lines(tmp_path)[1]
    assert verdict.startswith("verdict: not sound: ")
    assert "nothing confirms the base offset 1,099,511,627,782 of the last batch of a-0" in verdict
    assert "the offsets from 6 on" in verdict
    put(tmp_path / "a-0", 0, batch(0), batch(50), batch(60))  # offsets are missing before: it was compacted
    assert last_lines(tmp_path)[1].startswith("verdict: sound: ")


def test_a_partition_of_random_bytes_has_a_loss_and_a_next_step(tmp_path: Path) -> None:
    put(tmp_path / "a-0", 0, b"no batch" * 300)
    step, verdict = last_lines(tmp_path)
    assert "1 damaged range (2,400 bytes); lost: the end of 1 log, of unknown length" in verdict
    assert "scan REPLICA/a-0" in step


def test_the_next_steps_are_the_five_that_matter(tmp_path: Path) -> None:
    for number in range(10):
        put(tmp_path / f"a-{number}", 0, batch(0), broken(batch(3, records=number + 1)), batch(number + 4))
    paths = [tmp_path / f"a-{number}" for number in range(10)]
    findings = scan(Settings(source=tuple(map(str, paths)), cores=1))
    lines = next_steps(findings)
    commands = [line for line in lines if not line.startswith("#")]
    assert len(commands) == 5
    assert lines[0].endswith("; --source once more for each of the other 9 paths")
    assert [re.findall(r"--topic (\S+)", line) for line in commands[1:]] == [
        ["a:9"],
        ["a:8"],
        ["a:7"],
        ["a:6"],
    ]
    assert lines[-1].startswith("# and 6 steps like these")
    assert not any("…" in line for line in lines)


def test_damaged_ranges_side_by_side_are_left_by_one_step(tmp_path: Path) -> None:
    put(tmp_path / "a-0", 0, batch(0), broken(batch(3)))
    put(tmp_path / "a-0", 6, broken(batch(6)), batch(9))
    steps = next_steps(found(tmp_path))
    assert [line[-24:] for line in steps if "--to-offset" in line] == [" --to-offset 9 --execute"]


def test_copies_without_names_have_one_step_and_the_command_that_compares_them(tmp_path: Path) -> None:
    disks = [tmp_path / "one", tmp_path / "two"]
    for disk in disks:
        put(disk / "a-0", 0, batch(0), broken(batch(3)), batch(6))
    lines = next_steps(scan(Settings(source=tuple(map(str, disks)), cores=1)))
    assert [line for line in lines if line.endswith(f" scan broker1={disks[0]} broker2={disks[1]}")]
    assert len([line for line in lines if "--to-offset 6" in line]) == 1


@pytest.mark.parametrize(
    ("case", "position", "what"),
    [
        ("bitflip-baseoffset-v2-none-0", 3268, "offsets 65567 to 65576 are not after 30 and before 41"),
        ("bitflip-leaderepoch-v2-none-0", 3268, "leader epoch 65536 is not between 0 and 0"),
        ("base-offset-negative-0", 266, "base offset -100 is below that of the file's name, 0"),
    ],
)
def test_metadata_that_the_log_around_contradicts_are_named(case: str, position: int, what: str) -> None:
    findings = found(corpus.ROOT / "hostile" / case)
    ((_, one),) = findings.contradictions
    assert (one.position, one.what) == (position, what)
    assert findings.is_damaged, "--fail-on-damage ends with 3"
    text = list(report.to_text(findings))
    assert any(what in line for line in text)
    file = one.segment.removeprefix("file://")
    assert any(line.endswith(f" inspect {file} --position {position}") for line in text)
    word = "leader epoch" if "epoch" in case and "base" not in case else "base offset"
    assert text[-1].startswith("verdict: not sound: ")
    assert text[-2].endswith(f" inspect {one.segment.removeprefix('file://')} --position {position}")
    assert f"1 wrong {word}, which the batches around or the file's name contradict" in text[-1]


def test_a_log_of_several_leaders_and_a_compacted_one_contradict_nothing(tmp_path: Path) -> None:
    put(tmp_path / "a-0", 0, *(batch(3 * n, leader_epoch=n // 2) for n in range(8)))
    put(tmp_path / "b-0", 0, batch(0), batch(50), batch(90))
    put(tmp_path / "b-0", 100, batch(103))
    assert found(tmp_path).contradictions == []
