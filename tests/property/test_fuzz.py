"""A short run of every layer of ``make fuzz``, the same one each time, and every past finding again.

Counted, not timed: a seed and a number of inputs give the same inputs on every machine. Then the tools
themselves: that they see a crash, a hang, a read out of bounds.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafka_log_lake.udfs.decoder.range_checksums import RangeChecksums
from kafka_log_lake.udfs.kernels.record_builder import RecordBuilder
from tests.fuzz import compared, costs, payloads, plain, run, watchdog
from tests.fuzz.run import past_findings
from tests.fuzz.segments import Maker
from tests.support import corpus, reference_decoder
from tests.support.agreement import check_batch_and_records
from tests.support.damage import sound
from tests.support.drawn import part
from tests.support.fast import decode

SEED = 20_130
SMALL_HOSTILE = [path for path in corpus.segments(hostile=True) if path.stat().st_size <= 8192]


@pytest.mark.parametrize(("layer", "count"), [("kernels", part(240_000)), ("segments", part(4500))])
def test_changed_inputs_break_no_rule(layer: str, count: int, tmp_path: Path) -> None:
    report = watchdog.run(layer, tmp_path, seed=SEED, count=count)
    assert not report.findings
    assert report.inputs >= count
    assert report.with_records > count // 5


def test_changed_keys_and_values_break_no_rule(tmp_path: Path) -> None:
    count = part(4000)
    report = watchdog.run("payloads", tmp_path, seed=SEED, count=count)
    assert not report.findings
    assert report.inputs >= count
    assert count // 10 < report.sound < report.inputs - count // 10


def test_a_column_of_payloads_that_was_kept_is_examined_again(tmp_path: Path) -> None:
    made = payloads.pack("avro-nested", "value", [None, b"", b"\0\0"])
    assert payloads.unpack(made) == ("avro-nested", "value", [None, b"", b"\0\0"])
    (tmp_path / "payloads-1.log").write_bytes(payloads.pack("no-topic", "value", [b"\0\0\0\0\1"]))
    report = watchdog.run("findings", tmp_path, files=list(tmp_path.glob("*.log")))
    assert (report.inputs, report.findings) == (1, {})


def test_inputs_guided_by_coverage_break_no_rule(tmp_path: Path) -> None:
    if importlib.util.find_spec("atheris") is None:  # no wheel for this platform
        assert run.run_layer("guided", 1, SEED, tmp_path) is None
        return
    report = watchdog.run("guided", tmp_path, seed=SEED, count=part(2000))
    assert not report.findings
    assert report.inputs > part(1800)
    assert report.edges > 500


@settings(
    max_examples=part(450),
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(compared.inputs, compared.windows, st.booleans())
def test_compiled_equals_plain(data: bytes, window: int, has_successor: bool) -> None:
    compared.check_plain(data, window, has_successor=has_successor)


def test_changed_batches_are_judged_as_kafka_judges_them() -> None:
    verdicts, differing = compared.kafka_round(SEED, part(1500))
    assert not differing
    assert min(verdicts["read"], verdicts["refused"]) > part(375)


def test_costly_inputs_cost_no_more_than_they_may(tmp_path: Path) -> None:
    report = watchdog.run("costs", tmp_path, seed=SEED, count=part(90))
    assert not report.findings
    assert report.inputs >= part(90)


@pytest.mark.parametrize(
    "path",
    [path for path in past_findings() if not costs.is_costly(path) and not payloads.is_payloads(path)],
    ids=lambda path: path.stem,
)
def test_a_past_finding_is_mended(path: Path) -> None:
    data = path.read_bytes()
    decoded, expected = decode(data), reference_decoder.decode(data)
    assert [q["size_bytes"] for q in decoded.quarantine] == [q["size_bytes"] for q in expected.quarantine]
    for row, want in zip(decoded.batches, expected.batches, strict=True):
        position, size = row["position"], row["size_bytes"]
        records = [record for record in decoded.records if record["batch_position"] == position]
        assert row["crc_ok"] == want["crc_ok"]
        if row["crc_ok"]:
            check_batch_and_records(
                row, records, reference_decoder.decode_batch(data[position : position + size], position)
            )
    for window in (64, 100, 333, len(data)):
        compared.check_plain(data, window)


def test_past_findings_and_hostile_files_break_no_rule(tmp_path: Path) -> None:
    files = [*past_findings(), *SMALL_HOSTILE]
    report = watchdog.run("findings", tmp_path, seed=SEED, files=files)
    assert not report.findings
    assert report.inputs >= 2 * len(files)
    assert len(SMALL_HOSTILE) > 100


# The tools


def test_the_same_seed_makes_the_same_inputs() -> None:
    first, second, other = Maker(1), Maker(1), Maker(2)
    made = [first.segment() for _ in range(50)]
    assert made == [second.segment() for _ in range(50)]
    assert made != [other.segment() for _ in range(50)]
    assert len(set(made)) > 45


def test_another_process_makes_the_same_inputs() -> None:
    script = (
        "from tests.fuzz.segments import Maker; import zlib; maker = Maker(1);"
        "print(zlib.crc32(b''.join(maker.segment() for _ in range(200))))"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"PYTHONHASHSEED": number},
            cwd=watchdog.ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for number in ("1", "2")
    }
    assert len(printed) == 1


def test_without_atheris_its_layer_says_so_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert run.run_layer("guided", 1, SEED, tmp_path) is None
    (line,) = capsys.readouterr().out.splitlines()
    assert "needs atheris" in line


def test_a_crash_of_the_child_is_named_and_its_input_kept(tmp_path: Path) -> None:
    report = watchdog.run("crash", tmp_path, files=[tmp_path])
    ((rule, name),) = report.findings.items()
    assert rule.startswith("crash: SIG")
    assert (tmp_path / f"{name}.log").read_bytes() == b"crash"


def test_a_hang_of_the_child_is_named_and_its_input_kept(tmp_path: Path) -> None:
    report = watchdog.run("hang", tmp_path, files=[tmp_path], hang=0.5)
    ((rule, name),) = report.findings.items()
    assert rule.startswith("hang: ")
    assert (tmp_path / f"{name}.log").read_bytes() == b"hang"


def _claims_the_rest(number: int, left: int) -> bytes:
    batch = sound(8 * number)
    return batch[:8] + max(len(batch), left - 200).to_bytes(4, "big") + batch[12:]


LYING: costs.Recipe = (
    costs.Piece("a length that claims the rest", _claims_the_rest),
    costs.Piece("a sound batch", lambda number, left: sound(8 * number + 4)),
)


def test_a_decoder_that_reads_a_range_again_for_each_length_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kafka_log_lake.udfs.decoder.headers._HEADERS", costs.BLOCK)
    data = costs.build(LYING, costs.SMALL)
    assert "reads too much" not in costs.broken(costs.cost(data))

    def reread(self: RangeChecksums, start: int, end: int, v2: bool) -> int:
        return self._go_on(start, end, v2, 0)

    monkeypatch.setattr(RangeChecksums, "of", reread)
    taken: list[bytes] = []
    found = {one.rule: one.data for one in costs.Search(SEED).examine(LYING, taken.append)}
    assert found["reads too much"] == data
    assert taken == [data, data]  # twice before it was believed


# 1 MiB takes 43 s, 2 MiB 162 s: after each damaged range other chains are followed to the end of the segment
def test_lengths_that_claim_a_little_cost_no_more_than_they_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_log_lake.udfs.decoder.headers._HEADERS", costs.BLOCK)
    pairs = []
    for offset in range(0, 3000, 2):
        lying = sound(offset + 1, 1)
        pairs.append(sound(offset, 1) + lying[:8] + (1000).to_bytes(4, "big") + lying[12:])
    assert costs.broken(costs.cost(b"".join(pairs))) == {}


def test_a_decoder_that_holds_more_than_it_may_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    data = sound(0)
    assert costs.broken_by_memory(data, len(data)) == {}
    own = RecordBuilder.group
    held: list[np.ndarray] = []

    def wasteful(*arguments: Any) -> Any:
        held.append(np.zeros(8 << 20, dtype=np.uint8))
        return own(*arguments)

    monkeypatch.setattr(RecordBuilder, "group", wasteful)
    assert list(costs.broken_by_memory(data, len(data))) == ["holds too much"]


def _took(size: int, seconds: float, damages: int = 0) -> costs.Cost:
    return costs.Cost(size, damages, size, seconds)


def test_time_is_held_to_a_bound_and_to_its_growth() -> None:
    small = _took(costs.SMALL, 0.05)
    assert costs.broken(small) == {}
    assert list(costs.broken(_took(costs.SMALL, 5.0))) == ["takes too long"]
    assert costs.broken_by_growth(small, _took(costs.LARGE, 8 * 0.05)) == {}
    assert list(costs.broken_by_growth(small, _took(costs.LARGE, 64 * 0.05))) == ["grows too fast"]
    assert costs.broken_by_growth(small, _took(costs.LARGE, 64 * 0.05, damages=1000)) == {}


def test_what_a_busy_machine_does_once_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([60.0, 0.0, 0.0])
    monkeypatch.setattr(costs, "cost", lambda data: _took(len(data), next(seconds)))
    assert list(costs.Search(SEED).examine(LYING[1:], lambda data: None)) == []


def test_the_same_seed_makes_the_same_costly_inputs() -> None:
    first, second, other = costs.Search(1), costs.Search(2), costs.Search(1)
    made = [[costs.build(search.recipe(), 1 << 12) for _ in range(20)] for search in (first, second, other)]
    assert made[0] == made[2] != made[1]


_WRONG = """
import numpy as np
from kafka_log_lake.udfs.kernels.jit import kernel, load_be32, copy_sixteen

def wrong_index(buf):
    return buf[len(buf)]

def wrong_load(buf):
    return load_be32(buf, len(buf) - 3)

def wrong_copy(buf):
    copy_sixteen(buf, 0, buf, len(buf) - 15)
    return 0

for function in (wrong_index, wrong_load, wrong_copy):
    try:
        kernel(function)(np.zeros(20, dtype=np.uint8))
    except IndexError:
        print("IndexError in", function.__name__)
"""


def test_with_bounds_checked_a_kernel_that_reads_outside_raises(tmp_path: Path) -> None:
    script = tmp_path / "wrong.py"
    script.write_text(_WRONG)
    environment = os.environ | {"NUMBA_BOUNDSCHECK": "1", "PYTHONPATH": str(watchdog.ROOT)}
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, check=True
    )
    names = ("wrong_index", "wrong_load", "wrong_copy")
    assert done.stdout.splitlines() == [f"IndexError in {name}" for name in names]


@pytest.mark.parametrize("key", [-1, 3, slice(-2, None)])
def test_the_plain_form_takes_no_index_outside(key: int | slice) -> None:
    strict = np.zeros(3, dtype=np.uint8).view(plain.Strict)
    with pytest.raises(IndexError):
        strict[key]
    with pytest.raises(IndexError):
        strict[key] = 1
