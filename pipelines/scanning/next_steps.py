"""What to do after a scan: the few commands that matter most, complete, each below a comment."""

from __future__ import annotations

import shlex

from pipelines.command.terminal import counted_noun, invocation, printable
from pipelines.scanning.findings import Findings, Log, OpenTransaction
from pipelines.scanning.slice_scan import DamagedRange
from pipelines.source.naming import SWAP
from udfs.rules.clocks import CERTAIN

_BROKER = "--bootstrap-server HOST:9092"
_MOST, _SOURCES = 5, 4
Step = tuple[str, str]  # a comment, and a command; "" for none


def next_steps(findings: Findings) -> list[str]:
    """Lines of at most _MOST steps: those of each kind in turn, the largest loss first."""
    kinds = [
        [_decoding(findings)],
        [_moving(log, one) for log, one in _resumable(findings)],
        [_ending(log, one) for log, one in _hanging(findings)],
        [*map(_replacing, _cut(findings))],
    ]
    ordered = [kind[at] for at in range(max(map(len, kinds))) for kind in kinds if at < len(kind)]
    lines = [line for step in ordered[:_MOST] for line in step if line]
    if len(ordered) > _MOST:
        lines.append(
            f"# and {counted_noun(len(ordered) - _MOST, 'step')} like these; the tables above have all places"
        )
    return [printable(line) for line in lines]


def _decoding(findings: Findings) -> Step:
    sources = [f"--source {shlex.quote(source)}" for source in findings.sources]
    what, command, lake = "decode all records, batches and damaged ranges into tables", "decode", "lake"
    if findings.replicas:
        what, command, lake = "merge the copies into one log, and list what is lost", "recover", "recovered"
    if len(sources) > _SOURCES:
        what += f"; --source once more for each of the other {len(sources) - 1} paths"
        sources = sources[:1]
    if findings.named is not None:
        sources.append("--topic {} --partition {}".format(*findings.named))
    if findings.swap_files or SWAP in findings.skipped:
        sources.append("--include-swap")
    return f"# {what}", f"{invocation()} {command} {' '.join(sources)} --lake {lake}"


def _resumable(findings: Findings) -> list[tuple[Log, DamagedRange]]:
    """Damaged ranges behind which a consumer can go on, the largest loss first."""
    found = [(log, one) for log, one in findings.damages if one.first_lost is not None and one.next_offset]
    return sorted(found, key=lambda each: (each[1].first_lost or 0) - (each[1].next_offset or 0))


def _moving(log: Log, one: DamagedRange) -> Step:
    place = shlex.quote(f"{log.topic}:{log.partition}")
    return (
        f"# move a consumer group that stops at offset {one.first_lost} of {log.topic}-{log.partition} past "
        f"the damage ({log.partition_dir})",
        f"kafka-consumer-groups.sh {_BROKER} --group GROUP --topic {place} --reset-offsets "
        f"--to-offset {one.next_offset} --execute",
    )


def _hanging(findings: Findings) -> list[tuple[Log, OpenTransaction]]:
    found = [(log, one) for log in findings.logs for one in log.hanging]
    return sorted(found, key=lambda each: each[1].age.certainty != CERTAIN)


def _ending(log: Log, transaction: OpenTransaction) -> Step:
    """The command that aborts a transaction, if it is certain that it hangs, else the one that finds out."""
    opened, name = transaction.age, f"{log.topic}-{log.partition}"
    place = f"--topic {shlex.quote(log.topic)} --partition {log.partition}"
    if opened.certainty == CERTAIN:
        return (
            f"# abort a transaction that holds the last stable offset of {name} ({opened.why})",
            f"kafka-transactions.sh {_BROKER} abort {place} --start-offset {transaction.first_offset}",
        )
    return (
        f"# before an abort, check whether the transaction at offset {transaction.first_offset} of {name} "
        f"hangs ({opened.certainty}: {opened.why})",
        f"kafka-transactions.sh {_BROKER} find-hanging {place}",
    )


def _cut(findings: Findings) -> list[Log]:
    """Logs whose end is damage, is torn, or never came."""
    return [
        log
        for log in findings.logs
        if log.is_cut or any(one.first_lost is not None and one.next_offset is None for one in log.damages)
    ]


def _replacing(log: Log) -> Step:
    name = f"{log.topic}-{log.partition}"
    return (
        f"# this copy has no sound batch from offset {log.end} of {name} on: scan the folder of a replica. "
        "A broker that starts on this copy cuts the log there, and fetches the rest from the leader",
        f"{invocation()} scan REPLICA/{shlex.quote(name)}",
    )
