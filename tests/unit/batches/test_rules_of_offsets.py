"""Every place that applies a rule of offsets, sequences or transactions gives the model's answer.

The long run is ``python -m tests.support.rules_held 10000``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.scan.command import scan
from tests.support.log_model import Log, LogBatch, Segment
from tests.support.random_logs import random_logs, write_files
from tests.support.rule_model_offsets import OffsetModel
from tests.support.rules_held import FIRST_RUN, in_decode, in_files, in_recover, in_sql


def test_views_and_summary_follow_the_model() -> None:
    logs = random_logs(11, 400)
    assert [*in_sql(logs), *in_decode(logs)] == []


def test_scan_find_and_recover_of_real_segments_follow_the_model(tmp_path: Path) -> None:
    logs, root = random_logs(12, 60, FIRST_RUN), tmp_path.resolve()
    assert [*in_files(root, logs), *in_recover(root, logs)] == []


def log_of(*files: tuple[int, list[tuple[int, int, str]]]) -> Log:
    """A log from its files: base offset, and of each batch base offset, records and status."""
    made = [
        Segment(base, tuple(LogBatch(first, first, n, n, status=status) for first, n, status in batches))
        for base, batches in files
    ]
    return Log("t", 0, "/logs", tuple(made))


def test_batches_that_follow_each_other_prove_a_single_one_wrong(tmp_path: Path) -> None:
    """A scan has them as one run, which its neighbours do not contradict: they contradict each other."""
    sound = [(0, 5, "ok"), (5, 3, "ok")]
    after = (39, [(39, 2, "ok")])
    log = log_of((0, [*sound, (10, 4, "ok"), (12, 2, "ok"), (14, 4, "ok")]), after)
    assert [one.first for one in OffsetModel(log).batches if one.is_misplaced] == [10]
    assert [*in_files(tmp_path.resolve(), [log])] == []


def test_of_batches_with_one_base_offset_the_longest_is_the_one_before(tmp_path: Path) -> None:
    log = log_of((0, [(0, 2, "ok"), (2, 3, "ok"), (65541, 1, "ok"), (2, 1, "ok"), (7, 3, "ok")]))
    assert [(one.first, one.last, one.cause) for one in OffsetModel(log).lost] == [
        (5, 6, "wrong_base_offset")
    ]
    assert [*in_files(tmp_path.resolve(), [log])] == []


def test_of_batches_with_one_base_offset_the_shortest_is_the_first(tmp_path: Path) -> None:
    """A scan has the first two of the last file as one run, with the last offset of the second."""
    log = log_of((0, [(0, 3, "ok")]), (5, [(5, 1, "ok"), (6, 1, "ok"), (5, 1, "ok"), (8, 2, "ok")]))
    assert [(one.first, one.last, one.cause) for one in OffsetModel(log).lost] == [
        (3, 4, "missing_segment"),
        (7, 7, "wrong_base_offset"),
    ]
    assert [*in_files(tmp_path.resolve(), [log])] == []


def test_a_wrong_first_base_offset_hides_no_batch_between_garbage(tmp_path: Path) -> None:
    """Of what is after it the first offset is near that of the file's name, or near the batch before."""

    def log(number: int, order: str, bit: int) -> Log:
        """Of letters: sound, garbage, and wrong, whose base offset has this bit flipped."""
        batches = [LogBatch(5 + 2 * at, 5 + 2 * at, 2, 2, is_garbage=c == "g") for at, c in enumerate(order)]
        made = [
            replace(one, base_offset=one.true_base ^ 1 << bit) if letter == "w" else one
            for one, letter in zip(batches, order, strict=True)
        ]
        return Log(f"t{number}", 0, "/logs", (Segment(5, tuple(made), 5),))

    orders = ("wgsg", "wgssg", "wgsgs", "wgsgg", "wggsg", "sgwgsg", "sswgsg", "sgwggsgs")
    logs = [log(bit + 100 * at, order, bit) for at, order in enumerate(orders) for bit in (5, 40)]
    assert [*in_files(tmp_path.resolve(), logs)] == []


def test_a_wrong_last_base_offset_hides_no_batches_between_garbage(tmp_path: Path) -> None:
    """The last batch is said to begin where the batches between the garbage do."""
    batches = [LogBatch(2 * at, 2 * at, 2, 2, is_garbage=at in (1, 5)) for at in range(7)]
    batches[6] = replace(batches[6], base_offset=12 ^ 8)
    assert [*in_files(tmp_path.resolve(), [Log("t", 0, "/logs", (Segment(0, tuple(batches), 0),))])] == []


def test_the_offset_of_a_file_s_name_equals_that_of_its_first_batch_alone(tmp_path: Path) -> None:
    """Bit 3 of the offsets 11 and 15 is wrong: one batch is below the file's name, the other repeats it."""
    wrong = LogBatch(11, 3, 4, 4), LogBatch(15, 7, 1, 1)
    batches = LogBatch(7, 7, 1, 1), LogBatch(8, 8, 0, 3, status="corrupt"), *wrong, LogBatch(16, 16, 3, 3)
    log = Log("t", 0, "/logs", (Segment(7, batches, 7),))
    assert [(one.first, one.last, one.cause) for one in OffsetModel(log).lost] == [(8, 15, "damage")]
    assert [*in_sql([log]), *in_decode([log]), *in_files(tmp_path.resolve(), [log])] == []


def test_a_batch_that_reaches_into_the_next_file_is_judged_apart_from_the_one_that_it_continues(
    tmp_path: Path,
) -> None:
    log = log_of((16, [(16, 2, "ok"), (19, 4, "ok"), (23, 2, "ok")]), (24, [(24, 1, "ok"), (25, 1, "ok")]))
    assert [(one.first, one.last, one.cause) for one in OffsetModel(log).lost] == [
        (23, 23, "wrong_base_offset")
    ]
    assert [*in_files(tmp_path.resolve(), [log])] == []


def test_a_wrong_base_offset_below_the_file_s_name_hides_no_batch_between_garbage(tmp_path: Path) -> None:
    batches = [LogBatch(1000 + 2 * at, 1000 + 2 * at, 2, 2, is_garbage=at in (0, 2)) for at in range(5)]
    batches[3] = replace(batches[3], base_offset=1006 ^ 32)
    log = Log("t", 0, "/logs", (Segment(1000, tuple(batches), 1000),))
    assert [*in_files(tmp_path.resolve(), [log])] == []


def test_wrong_base_offsets_around_garbage_hide_no_batches(tmp_path: Path) -> None:
    """Of first batches that seem to be after what follows; and at the end of one chain and in the next."""

    def log(topic: str, wrong: dict[int, int], garbage: tuple[int, ...] = (1, 5)) -> Log:
        """Of batches with two offsets. wrong: number -> the bits of its base offset that are wrong."""
        made = [
            LogBatch(base, base ^ wrong.get(at, 0), 2, 2, is_garbage=at in garbage)
            for at, base in enumerate(range(16, 40, 2))
        ]
        return Log(topic, 0, "/logs", (Segment(16, tuple(made), 16),))

    both = log("first-two", {0: 1 << 62, 1: 8}, garbage=(2, 6))
    logs = [log("first", {0: 8}), log("end-and-next", {3: 1 << 62, 7: 8}), both]
    assert [*in_files(tmp_path.resolve(), logs)] == []


def test_find_names_the_offsets_before_a_segment_that_begins_with_damage(tmp_path: Path) -> None:
    log = log_of((0, [(0, 5, "ok")]), (20, [(20, 2, "corrupt"), (22, 1, "ok")]))
    assert [(one.first, one.last, one.cause) for one in OffsetModel(log).lost] == [(5, 21, "damage")]
    assert [*in_files(tmp_path.resolve(), [log])] == []


def test_two_batches_at_the_end_confirm_each_other(tmp_path: Path) -> None:
    """The offsets missing in front of them, in their segment, are the log cleaner's."""
    batches = LogBatch(3, 3, 3, 3), LogBatch(6, 6, 2, 2)
    log = Log("t", 0, "/logs", (Segment(0, (), 0), Segment(1, batches, 0)))
    assert [*in_files(tmp_path.resolve(), [log])] == []


def test_a_segment_that_begins_after_damage_is_not_compacted() -> None:
    log = log_of((0, [(0, 1, "ok"), (1, 3, "corrupt")]), (4, [(7, 4, "ok")]), (11, []), (14, [(14, 4, "ok")]))
    assert (11, 13, "missing_segment") in [(one.first, one.last, one.cause) for one in OffsetModel(log).lost]
    assert [*in_decode([log])] == []


def test_the_model_sees_each_kind_of_fact() -> None:
    """Else the others could agree on nothing."""
    models = [OffsetModel(log) for log in random_logs(11, 400)]
    assert {cause for model in models for _, _, cause in model.gaps} == {
        *("damage", "wrong_base_offset", "compaction", "retention", "missing_segment", "unknown"),
    }
    assert {one.cause for model in models for one in model.lost} == {
        *("damage", "wrong_base_offset", "missing_segment", "missing_start", "missing_end"),
    }
    assert {(one.step, one.cause) for model in models for one in model.steps} >= {
        *((None, None), ("next", None), ("gap", None), ("gap", "damage"), ("gap", "compaction")),
        *(("duplicate", None), ("reset", None)),
    }


def test_a_base_offset_is_called_wrong_only_where_one_is_and_no_gap_holds_a_sound_batch() -> None:
    """The truth is known: the generator flipped one bit, seldom two. Of one alone nearly all are found."""
    found: Counter[tuple[bool, bool]] = Counter()
    for log in random_logs(13, 1500):
        model = OffsetModel(log)
        flips = [
            one.batch for one in model.batches if one.batch and one.batch.base_offset != one.batch.true_base
        ]
        hidden = any(b.base_offset != b.true_base for s in log.segments for b in s.batches if not b.is_sound)
        for one in model.batches:
            assert one.batch is not None
            if len(flips) <= 1 and not hidden and not model.damages:
                found[one.batch in flips, one.is_misplaced] += 1
        held = [
            (one.first, one.last) for one in model.places if not one.is_misplaced and one.last is not None
        ]
        for first, last, _ in model.gaps:
            assert not [
                own
                for own in held
                if first is not None and last is not None and own[0] <= last and own[1] >= first
            ]
    assert found[False, True] <= 2  # two batches that could each be the wrong one
    assert found[True, True] > 2 * found[True, False]  # the last batch of a log has no neighbour to tell


@pytest.mark.parametrize("order", ["gwgss", "gwwgss", "sgwwgss"])
def test_batches_between_garbage_of_which_all_base_offsets_are_wrong_count_as_damaged(
    tmp_path: Path, order: str
) -> None:
    """They could lie within a value. Letters: sound, garbage, and wrong by a bit of its own."""
    batches = [LogBatch(2 * at, 2 * at, 2, 2, is_garbage=c == "g") for at, c in enumerate(order)]
    for at, bit in zip((at for at, c in enumerate(order) if c == "w"), (5, 16), strict=False):
        batches[at] = replace(batches[at], base_offset=batches[at].true_base ^ 1 << bit)
    log = Log("t", 0, "/logs", (Segment(0, tuple(batches), 0),))
    write_files(tmp_path, [log])
    (own,) = scan(Settings(source=(str(tmp_path),), cores=1)).logs
    first, sound = 2 * order.index("g"), 2 * order.rindex("g") + 2
    assert [(o.first_lost, o.last_lost, o.next_offset) for o in own.damages] == [(first, sound - 1, sound)]
    plain = replace(log_of((0, [(0, 1, "ok")])), topic="plain")
    assert [*in_files(tmp_path.resolve() / "both", [log, plain])] == []


def test_the_name_of_an_empty_last_file_is_an_offset_that_the_log_had_reached(tmp_path: Path) -> None:
    logs = [
        replace(log_of((0, []), (4, [])), topic="empty"),
        replace(log_of((0, [(0, 3, "ok")]), (4, []), (9, [])), topic="after-batches"),
        replace(log_of((0, [(0, 3, "ok"), (3, 1, "corrupt")]), (9, [])), topic="after-damage"),
    ]
    assert [[(one.first, one.last, one.cause) for one in OffsetModel(log).lost] for log in logs] == [
        [(0, 3, "missing_segment")],
        [(3, 8, "missing_segment")],
        [(3, 8, "damage")],
    ]
    root = tmp_path.resolve()
    found = [*in_files(root, logs), *in_recover(root, logs), *in_sql(logs), *in_decode(logs)]
    assert found == []
