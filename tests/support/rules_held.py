"""Compares every place that applies a rule of offsets, sequences or transactions with the model of it.

``python -m tests.support.rules_held 10000`` runs views, ``decode``, ``scan``, ``find`` and ``recover`` over
that many random logs, and prints the contradictions.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.find.command import search
from kafka_log_lake.pipelines.find.request import Request
from kafka_log_lake.pipelines.plan import missing
from kafka_log_lake.pipelines.recover.compare import Compared, compare
from kafka_log_lake.pipelines.recover.sources import find_copies
from kafka_log_lake.pipelines.scan.command import scan
from tests.support.log_model import Log, wrapped
from tests.support.made_database import by_log, database_of, with_transactions
from tests.support.made_tables import tables
from tests.support.random_logs import Odds, random_logs, write_files
from tests.support.rule_model_offsets import OffsetModel
from tests.support.rule_model_transactions import after_open_transaction, transactions_of

_MISSING = ("missing_segment", "wrong_base_offset")
SQL = {
    "sound_batches": "SELECT partition_dir, base_offset, is_misplaced FROM sound_batches",
    "compacted_logs": "SELECT partition_dir, 1 FROM compacted_logs",
    "log_stretches": "SELECT partition_dir, file_base_offset, stretch, retentions FROM log_stretches",
    "offset_gaps": "SELECT partition_dir, first_offset, last_offset, cause, "
    "CASE WHEN place = 'not delivered' THEN CAST(offsets AS BIGINT) END FROM offset_gaps "
    "WHERE place = 'between batches' OR cause = 'after_open_transaction'",
    "lost_offsets": "SELECT partition_dir, first_lost, last_lost, cause, is_certain, next_offset "
    "FROM lost_offsets",
    "sequence_steps": "SELECT partition_dir, base_offset, step, missing_sequences, cause FROM sequence_steps",
    "producers": "SELECT partition_dir, sum(sequence_gaps), sum(missing_sequences), sum(duplicates), "
    "sum(resets), sum(unexplained_steps) FROM producers GROUP BY partition_dir",
    "current_transactions": "SELECT partition_dir, producer_id, producer_epoch, first_offset, last_offset, "
    "records, marker_offset, outcome, outcome_uncertain, holds_last_stable_offset FROM current_transactions",
}


# What a scan can see: no earlier run, nothing left out, no checkpoint files
FIRST_RUN = Odds(retention=0, left_out=0, checkpoint=0)


def expected(log: Log) -> dict[str, list[tuple[Any, ...]]]:
    """Returns the rows that the model expects of each statement in SQL."""
    model = OffsetModel(log)
    steps = [one.step for one in model.steps]
    unexplained = sum(one.step not in (None, "next") and one.cause is None for one in model.steps)
    counted = (
        steps.count("gap"),
        sum(one.missing for one in model.steps),
        steps.count("duplicate"),
        steps.count("reset"),
        unexplained,
    )
    return {
        "sound_batches": [(one.first, one.is_misplaced) for one in model.batches],
        "compacted_logs": [(1,)] if model.is_compacted else [],
        "log_stretches": [(base, model.stretches[base], times) for base, times in model.retentions.items()],
        "offset_gaps": [*((*one, None) for one in model.gaps), *after_open_transaction(log)],
        "lost_offsets": [tuple(one) for one in model.lost],
        "sequence_steps": [tuple(one) for one in model.steps],
        "producers": [counted] if model.steps else [],
        "current_transactions": [tuple(one) for one in transactions_of(log)],
    }


def in_sql(logs: Sequence[Log]) -> Iterator[str]:
    """Yields where the views contradict the model."""
    database = database_of(logs, *SQL)
    found = {name: by_log(database, statement) for name, statement in SQL.items()}
    for log in logs:
        for name, rows in expected(log).items():
            yield from _differing(log, name, rows, found[name][log.partition_dir])


def in_decode(logs: Sequence[Log]) -> Iterator[str]:
    """Yields where a run's summary contradicts the model; it has the ledger and the findings."""
    made = with_transactions(tables(logs))
    names: dict[str, list[tuple[Any, ...]]] = {f"{log.topic}-{log.partition}": [] for log in logs}
    for name, one in missing.of_findings(made["segments"], made["offset_findings"]):
        names[name].append((one.first, one.last, one.cause, one.seek_to))
    said: dict[str, list[tuple[Any, ...]]] = {name: [] for name in names}
    for log in logs:
        said[f"{log.topic}-{log.partition}"] += [
            (one.first, one.last, one.cause, one.seek_to)
            for one in OffsetModel(log).lost
            if one.cause in _MISSING and one.first is not None
        ]
    for log in logs:
        name = f"{log.topic}-{log.partition}"
        yield from _differing(log, "summary", said.pop(name, []), names.pop(name, []))


def in_files(root: Path, logs: Sequence[Log]) -> Iterator[str]:
    """Yields where ``scan`` or ``find`` of real files contradict the model. No log may have earlier runs."""
    logs = [log for log in logs if not _hides_a_batch(log)]
    write_files(root, logs)
    yield from _in_scan(root, logs)
    for folder in sorted({log.folder for log in logs}):
        yield from _in_find(root, [log for log in logs if log.folder == folder])


def _in_scan(root: Path, logs: Sequence[Log]) -> Iterator[str]:
    findings = scan(Settings(source=(str(root),), cores=1))
    found = {one.partition_dir.removeprefix(f"file://{root}"): one for one in findings.logs}
    for log in logs:
        model, own = OffsetModel(log), found[log.partition_dir.removeprefix("file://")]
        lost = [one for one in model.lost if one.first is not None]
        missed = [(one.first, one.last, one.cause) for one in lost if one.cause in _MISSING]
        said = [(one.first, one.last, one.cause) for one in own.missing]
        yield from _differing(log, "scan: missing", missed, said)
        damaged = {(one.first, one.last, one.seek_to) for one in lost if one.cause == "damage"}
        placed = {
            (one.first_lost, one.last_lost, one.next_offset)
            for one in own.damages
            if one.first_lost is not None
        }
        yield from _differing(log, "scan: damage", damaged, placed)
        held = [one for one in transactions_of(log) if one.holds]
        opened = [(t.producer_id, t.producer_epoch, t.first_offset, t.is_uncertain) for t in held]
        said_open = [
            (t.producer_id, t.producer_epoch, t.first_offset, t.is_uncertain) for t in own.open_transactions
        ]
        yield from _differing(log, "scan: open transactions", opened, said_open)


def _in_find(root: Path, logs: Sequence[Log]) -> Iterator[str]:
    """Yields where a search for all records contradicts the model. logs: of one folder."""
    looked = search(Settings(source=(str(root) + logs[0].folder,), cores=1), Request())
    found: dict[str, list[tuple[Any, ...]]] = {_name(log): [] for log in logs}
    for batch in looked:
        names = ("topic", "partition", "offset", "is_control")
        for topic, partition, *row in zip(*(batch.column(name).to_pylist() for name in names), strict=True):
            found[f"{topic}-{partition}"].append(tuple(row))
    unseen: dict[str, set[tuple[Any, ...]]] = {_name(log): set() for log in logs}
    for one in looked.unsearched:
        if one.damage is not None:
            unseen[one.name].add(("damage", one.damage.first_lost, one.damage.last_lost))
        else:
            name, _, offsets = one.name.rpartition(": offsets ")
            first, last = offsets.split(" to ")
            unseen[name].add((int(first), int(last) if last.isdigit() else None))
    for log in logs:
        model = OffsetModel(log)
        batches = [one.batch for one in model.batches if one.batch is not None]
        records = [
            (wrapped(one.base_offset + place), one.control is not None)
            for one in batches
            for place in one.places
        ]
        yield from _differing(log, "find: records", records, found[_name(log)])
        lost = [one for one in model.lost if one.first is not None]
        missed = {(one.first, one.last) for one in lost if one.cause == "missing_segment"}
        said = {one for one in unseen[_name(log)] if one[0] != "damage"}
        yield from _differing(log, "find: not there", missed, said)
        damaged = {("damage", one.first, one.last) for one in lost if one.cause == "damage"}
        said = {one for one in unseen[_name(log)] - said if one[1] is not None}
        yield from _differing(log, "find: damaged", damaged, said)


def in_recover(root: Path, logs: Sequence[Log]) -> Iterator[str]:
    """Yields where ``recover`` contradicts the model, or the offsets that the broker gave.

    Unlike the others it corrects base offsets: where it did, only these are compared. The logs are those of
    ``in_files``, which writes them.
    """
    logs = [log for log in logs if not _hides_a_batch(log)]
    copies: dict[str, list[Log]] = {}
    for log in logs:
        copies.setdefault(_name(log), []).append(log)
    sources = sorted({str(root) + log.folder for log in logs})
    for one in compare(find_copies(sources, lambda topic: True), Settings(cores=1)):
        own = copies[f"{one.topic}-{one.partition}"]
        model = OffsetModel(own[0])
        has_wrong = any(b.base_offset != b.true_base for log in own for s in log.segments for b in s.batches)
        if len(own) > 1:  # a copy may have what the other one lacks; a wrong base offset is in both
            continue
        if not has_wrong and not one.healed.batches["mended"].any():
            lost = [(o.first, o.last) for o in model.lost]
            yield from _differing(own[0], "recover: lost", lost, _lost(one))
            yield from _differing(
                own[0], "recover: compacted", [(model.is_compacted,)], [(one.is_compacted,)]
            )
        # a gap before a batch may be the cleaner's, and a lost segment after one may look like a wrong bit
        is_plain = has_wrong and not (model.is_compacted or own[0].is_compacted)
        if is_plain and "base offset" not in " ".join(one.healed.doubts):
            yield from _differing(own[0], "recover: base offsets", [], _misplaced(one, own))


def _lost(one: Compared) -> list[tuple[int, int | None]]:
    """What a healed log lacks: first and last offset; without the last one at its end."""
    return [(gap.first, None if gap.first >= one.history.end else gap.last) for gap in one.healed.lost]


def _misplaced(one: Compared, logs: Sequence[Log]) -> Iterator[tuple[str, int, int]]:
    """Yields (folder, base offset in the healed log, base offset that the broker gave) where they differ."""
    for copy in one.copies:
        log = next(log for log in logs if copy.folder.endswith(log.partition_dir.removeprefix("file://")))
        places = {
            (segment.file_base_offset, position): batch.true_base
            for segment in log.segments
            for position, batch in segment.places()
        }
        own = one.healed.batches[one.healed.batches["copy"] == copy.number]
        for row in own:
            true = places[int(row["file_base"]), int(row["position"])]
            if row["base"] != true:
                yield copy.name, int(row["base"]), true


def _name(log: Log) -> str:
    return f"{log.topic}-{log.partition}"


def _hides_a_batch(log: Log) -> bool:
    """Returns whether all base offsets between garbage are wrong: such batches could lie within a value."""
    for segment in log.segments:
        parts = [[*own] for _, own in groupby(segment.batches, lambda one: one.is_garbage)]
        for part in parts[1:-1]:
            if all(not one.is_garbage and one.base_offset != one.true_base for one in part):
                return True
    return False


def _differing(
    log: Log, name: str, rows: Iterable[tuple[Any, ...]], found: Iterable[tuple[Any, ...]]
) -> Iterator[str]:
    wanted, given = sorted(map(repr, rows)), sorted(map(repr, found))
    if wanted != given:
        only = [one for one in wanted if one not in given], [one for one in given if one not in wanted]
        yield f"{name} of {log.partition_dir}: the model has {only[0]}, it has {only[1]}"


def main(count: int, seed: int = 1) -> int:
    began, contradictions, logs = time.monotonic(), 0, 0
    while logs < count:
        part = random_logs(seed + logs, min(1000, count - logs))
        logs += len({(log.topic, log.partition) for log in part})
        with TemporaryDirectory() as folder:
            files = random_logs(seed + logs, min(1000, count), FIRST_RUN)
            root = Path(folder).resolve()
            read = [*in_files(root, files), *in_recover(root, files)]
        for text in [*in_sql(part), *in_decode(part), *in_sql(files), *in_decode(files), *read]:
            contradictions += 1
            print(text)
    print(f"{logs:,} random logs, {contradictions:,} contradictions, {time.monotonic() - began:.0f} s")
    return 1 if contradictions else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
