"""Prints findings as tables and next steps, for a person."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from kafka_log_lake.pipelines.cli.terminal import counted_noun, printable, time_text
from kafka_log_lake.pipelines.cli.text_tables import (
    Section,
    open_console,
    print_table,
    shortened,
    size_text,
    text_lines,
)
from kafka_log_lake.pipelines.load_check.found import table
from kafka_log_lake.pipelines.scan import disks, losses, tier
from kafka_log_lake.pipelines.scan.findings import Findings, ScannedLog
from kafka_log_lake.pipelines.scan.losses import next_steps
from kafka_log_lake.pipelines.scan.topics import by_topic, first_time, formats_of, last_time
from kafka_log_lake.pipelines.tasks.open_transactions import OpenTransaction
from kafka_log_lake.pipelines.tasks.slice_scan import DamagedRange
from kafka_log_lake.udfs.batches.hanging_transactions import MARKERS_WRITTEN
from kafka_log_lake.udfs.values.schemas.payloads import KEY, VALUE
from kafka_log_lake.udfs.values.schemas.profile import PayloadFormat

OfTopic = TypeVar("OfTopic", ScannedLog, PayloadFormat)
_REST = " (all of them: --json)"


def headline(findings: Findings) -> str:
    """Returns the first line of the report: segments, topics, bytes, records, and how long the scan took."""
    logs = findings.logs
    size, segments = sum(log.bytes for log in logs), sum(log.segments for log in logs)
    records = counted_noun(sum(log.records for log in logs), "record")
    if control := sum(log.control_records for log in logs):
        records += f" and {counted_noun(control, 'control record')}"
    topics = {log.topic for log in logs}
    rate = f" ({size_text(size / findings.seconds)}/s)" if findings.seconds else ""
    return (
        f"{counted_noun(segments, 'segment')} of {counted_noun(len(topics), 'topic')}, {size_text(size)}, "
        f"{records}, scanned in {findings.seconds:.1f} s{rate}"
    )


def sections(findings: Findings) -> Iterator[Section]:
    """Yields the tables that have rows, the overview of topics first."""
    names = _names(findings)
    tables = [
        _topics(findings),
        Section(
            "keys and values",
            ("topic", "keys", "values", "looked at"),
            [_payloads(topic, some) for topic, some in _by_topic(findings.payloads).items()],
            (3,),
        ),
        *_faults(findings, names),
        *_transactions(findings, names),
        *_ends_and_copies(findings, names),
        *_files(findings),
    ]
    return shortened(tables)


def _faults(findings: Findings, names: Mapping[str, str]) -> Iterator[Section]:
    """Yields the tables of what is damaged, foreign, contradictory or missing within logs."""
    yield Section(
        "damage",
        ("log", "segment", "position", "bytes", "reason", "lost offsets", "next sound offset"),
        [(names[log.partition_dir], *_damage(damage)) for log, damage in findings.damages],
        (2, 3, 6),
    )
    yield Section(
        "not Kafka's",
        ("log", "file", "what it is"),
        [
            (names[log.partition_dir], _file(uri), kind)
            for log in findings.logs
            for uri, kind in log.foreign.items()
        ],
    )
    yield Section(
        "contradictions",
        ("log", "segment", "position", "what"),
        [
            (
                names[log.partition_dir],
                _file(contradiction.segment),
                f"{contradiction.position:,}",
                contradiction.what,
            )
            for log, contradiction in findings.contradictions
        ],
        (2,),
    )
    yield Section(
        "missing",
        ("log", "first lost", "last lost", "why"),
        [
            (names[log.partition_dir], f"{unseen.first:,}", unseen.last_text, unseen.why)
            for log, unseen in findings.missing
        ],
        (1, 2),
    )


def _transactions(findings: Findings, names: Mapping[str, str]) -> Iterator[Section]:
    """Yields the tables of transactions that are open, or that a coordinator has decided."""
    yield Section(
        "open transactions",
        ("log", "producer id", "epoch", "first offset", "began", "state", "coordinator", "remedy"),
        [
            (names[log.partition_dir], *_transaction(transaction))
            for log in findings.logs
            for transaction in log.open_transactions
        ],
        (1, 2, 3),
    )
    yield Section(
        "prepared transactions",
        ("transactional id", "state", "since", "what"),
        [
            (
                printable(transaction.transactional_id),
                transaction.state,
                _time(transaction.updated_ms),
                MARKERS_WRITTEN,
            )
            for transaction in findings.prepared
        ],
    )


def _ends_and_copies(findings: Findings, names: Mapping[str, str]) -> Iterator[Section]:
    """Yields the tables of logs that do not load, of how logs end, and of their copies."""
    yield table(findings.unloadable)
    yield Section(
        "tails",
        ("log", "tail", "bytes", "lost"),
        [
            (names[log.partition_dir], log.tail, f"{log.tail_bytes:,}", losses.tail_text(log))
            for log in findings.logs
            if log.tail_bytes
        ],
        (2,),
    )
    yield Section(
        "copies compared",
        ("topic-partition", "copy", "role", "first", "end", "behind", "diverged from", "damage"),
        [_replica(row) for row in sorted(findings.replicas, key=_differs_last)],
        (3, 4, 5, 6, 7),
    )
    yield from disks.leaders(findings)
    yield disks.clusters(findings)
    several = {} if findings.replicas else findings.copies
    yield Section(
        "several copies",
        ("topic-partition", "last offset", "folder"),
        [
            (printable(f"{topic}-{partition}"), _number(log.last_offset), printable(log.partition_dir))
            for (_, topic, partition), logs in sorted(several.items(), key=_are_equal)
            for log in logs
        ],
        (1,),
    )


def _files(findings: Findings) -> Iterator[Section]:
    """Yields the tables of room on disks, of the tier, of swap files and of files that were not read."""
    yield disks.room(findings)
    yield tier.costs(findings)
    yield tier.section(findings)
    yield Section(
        "swap files", ("in place of segments",), [(printable(file),) for file in findings.swap_files]
    )
    yield Section(
        "unreadable",
        ("file or folder", "why"),
        [(printable(name), printable(why)) for name, why in sorted(findings.unreadable.items())],
    )
    yield Section("skipped", ("reason", "number", "bytes"), _skipped(findings), (1, 2))


def _skipped(findings: Findings) -> list[tuple[str, ...]]:
    sizes: Counter[str] = Counter()
    for passed in findings.passed_over:
        sizes[passed.reason] += passed.bytes
    return [
        (reason, f"{number:,}", f"{sizes[reason]:,}" if reason in sizes else "-")
        for reason, number in sorted(findings.skipped.items())
    ]


def _by_topic(some: Iterable[OfTopic]) -> dict[str, list[OfTopic]]:
    by_topic: dict[str, list[OfTopic]] = defaultdict(list)
    for part in some:
        by_topic[part.topic].append(part)
    return by_topic


def _payloads(topic: str, formats: Sequence[PayloadFormat]) -> tuple[str, ...]:
    sides = [[format_ for format_ in formats if format_.side == side] for side in (KEY, VALUE)]
    most = max(sum(format_.payloads for format_ in some) for some in sides)
    return (
        printable(topic),
        *("; ".join(format_.words for format_ in some) or "-" for some in sides),
        f"{most:,}",
    )


def _topics(findings: Findings) -> Section:
    """Returns the table of topics; with a column of control records if there are any."""
    has_control = any(log.control_records for log in findings.logs)
    counts = ("partitions", "segments", "bytes", "records", *(("control records",) if has_control else ()))
    has_clusters = len(findings.clusters) > 1
    rows = [
        (printable(topic), *((printable(cluster),) if has_clusters else ()), *_topic(logs, has_control))
        for topic, cluster, logs in by_topic(findings)
    ]
    names = ("topic", *(("cluster",) if has_clusters else ()))
    numbers = tuple(range(len(names), len(names) + len(counts)))
    return Section("topics", (*names, *counts, "first", "last", "formats"), rows, numbers)


def _topic(logs: Sequence[ScannedLog], with_control: bool) -> tuple[str, ...]:
    return (
        f"{len({log.partition for log in logs}):,}",
        f"{sum(log.segments for log in logs):,}",
        size_text(sum(log.bytes for log in logs)),
        f"{sum(log.records for log in logs):,}",
        *((f"{sum(log.control_records for log in logs):,}",) if with_control else ()),
        _time(first_time(logs)),
        _time(last_time(logs)),
        ", ".join(f"v{magic} {codec}" for magic, codec in formats_of(logs)),
    )


def _damage(damage: DamagedRange) -> tuple[str, ...]:
    lost = "none"
    if damage.first_lost is not None:
        lost = (
            f"{damage.first_lost:,} to {'the end' if damage.last_lost is None else f'{damage.last_lost:,}'}"
        )
    return (
        _file(damage.segment),
        f"{damage.position:,}",
        f"{damage.size:,}",
        damage.reason,
        lost,
        _number(damage.next_offset),
    )


def _transaction(transaction: OpenTransaction) -> tuple[str, ...]:
    ending, state = transaction.ending, "open"
    if ending is not None and transaction.is_hanging:
        state = f"hanging: {ending.certainty}, {ending.why}"
    return (
        str(transaction.producer_id),
        str(transaction.producer_epoch),
        f"{transaction.first_offset:,}",
        _time(transaction.first_timestamp if transaction.first_timestamp >= 0 else None),
        f"{state}, its marker may be in damaged bytes"
        if transaction.is_uncertain and not transaction.is_hanging
        else state,
        *_coordinator(transaction),
    )


def _differs_last(row: dict[str, object]) -> bool:
    """Returns a sort key that puts copies that differ from the true history first."""
    return row["diverged_from"] is None and not row["behind"] and not row["damaged_ranges"]


def _are_equal(copies: tuple[tuple[str, str, int], list[ScannedLog]]) -> bool:
    """Returns a sort key that puts copies first that differ in what they hold."""
    return (
        len({(log.first_offset, log.last_offset, log.records, log.control_records) for log in copies[1]}) == 1
    )


def _coordinator(transaction: OpenTransaction) -> tuple[str, str]:
    """Returns two cells: what its coordinator noted, and what ends the transaction."""
    ending = transaction.ending
    if ending is None:
        return "-", "-"
    noted = "-"
    if ending.transactional_id is not None:
        timeout = f"timeout {ending.coordinator_timeout_ms:,} ms"
        noted = f"{ending.transactional_id}: {ending.coordinator_state}, {timeout}"
    return printable(noted), ending.remedy if transaction.is_hanging else "-"


def _replica(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        printable(f"{row['topic']}-{row['partition']}"),
        printable(row["copy"]),
        row["role"],
        *(_number(row[name]) for name in ("log_start_offset", "log_end_offset", "behind", "diverged_from")),
        f"{row['damaged_ranges']:,}",
    )


def _names(findings: Findings) -> dict[str, str]:
    """Maps partition_dir to ``<topic>-<partition>``; for copies, to the end of the path that differs."""
    names = {log.partition_dir: printable(f"{log.topic}-{log.partition}") for log in findings.logs}
    for logs in findings.copies.values():
        paths = [log.partition_dir.split("/") for log in logs]
        parts = next(n for n in itertools.count(1) if len({*(tuple(p[-n:]) for p in paths)}) == len(paths))
        names |= {"/".join(path): printable("/".join(path[-parts:])) for path in paths}
    return names


def _file(uri: str) -> str:
    return uri.rpartition("/")[2]


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _time(milliseconds: int | None) -> str:
    return "-" if milliseconds is None else time_text(milliseconds)


def to_text(findings: Findings) -> Iterator[str]:
    """Yields lines for a pipe or a file: no colour, no box, columns aligned."""
    yield headline(findings)
    for section in sections(findings):
        yield ""
        yield from text_lines(section, _REST)
    yield ""
    yield "next:"
    yield from (f"  {step}" for step in next_steps(findings))
    yield losses.verdict(findings).line


def print_rich(findings: Findings) -> None:
    """Prints the findings on a terminal, with ``rich``."""
    from rich.text import Text

    console = open_console()
    console.print(Text(headline(findings), style="bold"))
    for section in sections(findings):
        print_table(console, section, _REST)
    console.print(Text("next:", style="bold"))
    for step in next_steps(findings):
        console.print(Text(f"  {step}", style="dim" if step.startswith("#") else ""), soft_wrap=True)
    verdict = losses.verdict(findings)
    console.print(Text(verdict.line, style="green" if verdict.is_sound else "bold red"), soft_wrap=True)
