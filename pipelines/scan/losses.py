"""Says what the findings of a scan cost: the verdict, and the few commands that matter most next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from importlib.util import find_spec

from kafka_log_lake.pipelines.cli.generated import command_line, shell_word
from kafka_log_lake.pipelines.cli.terminal import counted_noun, first_names, invocation
from kafka_log_lake.pipelines.cli.verdict import Tails, Verdict, claimed_by, segments_text
from kafka_log_lake.pipelines.listing.leftovers import PassedOver, passed_over_texts
from kafka_log_lake.pipelines.listing.naming import (
    DELETED,
    FUTURE,
    SWAP,
    TO_DELETE,
    left_state,
    unlooked_texts,
)
from kafka_log_lake.pipelines.plan.missing import elsewhere_texts, lost_texts
from kafka_log_lake.pipelines.scan.findings import Findings, ScannedLog
from kafka_log_lake.pipelines.tasks.contradictions import Contradiction
from kafka_log_lake.pipelines.tasks.open_transactions import OpenTransaction
from kafka_log_lake.pipelines.tasks.slice_scan import DamagedRange
from kafka_log_lake.udfs.batches.clocks import CERTAIN
from kafka_log_lake.udfs.batches.hanging_transactions import ONGOING, PREPARED, Ending
from kafka_log_lake.udfs.errors import install


def tail_text(log: ScannedLog) -> str:
    """Says what a torn or zeroed tail cost: the offsets that its header claims, if it is whole."""
    if log.tail == "zeros":
        if not log.batches:
            return "unknown: nothing but zeros, as of a segment that was never written, or lost all of it"
        return "none, if nothing was written there: the zeros of a preallocated segment, or of a crash"
    if log.torn is None:
        return f"unknown: its header is cut; from offset {log.end:,} on"
    first, last = log.torn
    return f"offsets {first:,} to {last:,}, unless the broker is still writing them"


def verdict(findings: Findings) -> Verdict:
    """Returns what a scan found as a verdict: faults, and notes on what it passed over."""
    logs, damages = findings.logs, [damage for _, damage in findings.damages]
    size, segments = sum(log.bytes for log in logs), sum(log.segments for log in logs)
    damaged = sum(damage.size for damage in damages)
    faults = []
    if damages:
        faults.append(f"{counted_noun(len(damages), 'damaged range')} ({counted_noun(damaged, 'byte')})")
    wrong = Counter(
        "base offset" if contradiction.is_offset else "leader epoch"
        for _, contradiction in findings.contradictions
    )
    if wrong:
        named = " and ".join(counted_noun(count, f"wrong {word}") for word, count in sorted(wrong.items()))
        faults.append(f"{named}, which the batches around or the file's name contradict")
    faults += _unconfirmed(logs)
    tails = _tails(logs)
    faults += tails.faults
    expired, beyond = _passed_over(findings)
    gone = [place for placement in findings.placements.values() for place in placement.gone]
    if gone:
        faults.append(
            f"{counted_noun(len(gone), 'partition folder')} that __cluster_metadata places on these disks "
            f"{'is' if len(gone) == 1 else 'are'} not there ({first_names([name for _, name in gone], 3)})"
        )
    unreadable = len(findings.unreadable)
    unread = f"{unreadable:,} file{'s or folders' if unreadable > 1 else ' or folder'} can't be read"
    return Verdict(
        segments_text(segments, size),
        size,
        damaged + tails.bytes + sum(log.foreign_bytes for log in logs),
        faults,
        _lost(findings, tails),
        [
            unread if unreadable else "",
            *_foreign(logs),
            *tails.unchecked,
            *elsewhere_texts(unseen for _, unseen in findings.missing),
            *unlooked_texts(findings.skipped),
            *(f"{text}, which --include-deleted reads" for text in passed_over_texts(beyond)),
        ],
        [*tails.notes, *_notes(findings, expired)],
    )


def _foreign(logs: Sequence[ScannedLog]) -> list[str]:
    """Says how many files are of other programs, by kind."""
    kinds = Counter(kind.partition(":")[0] for log in logs for kind in log.foreign.values())
    return [
        f"{counted_noun(number, 'file')} of another kind ({kind})" for kind, number in sorted(kinds.items())
    ]


def _passed_over(findings: Findings) -> tuple[list[PassedOver], list[PassedOver]]:
    """Splits passed-over leftovers of a broker: those that retention or the cleaner explains, and the others.

    A ``.log.deleted`` file below the log start is what retention deletes, one below what the cleaner has seen
    is what it replaces, and a folder ``-delete`` or ``-future`` is of a topic that was deleted, or of a copy
    in the making. Other ``.log.deleted`` files were truncated.
    """
    known = {log.partition_dir: log.account for log in findings.logs}
    expired, others = list[PassedOver](), list[PassedOver]()
    for file in findings.passed_over:
        account = known.get(file.uri.rpartition("/")[0])
        is_expired = file.reason in (DELETED, FUTURE)
        if account is not None and file.reason == TO_DELETE:
            is_expired = file.first_offset < max(account.start, account.witnesses.cleaned_before or 0)
        (expired if is_expired else others).append(file)
    return expired, others


def _notes(findings: Findings, passed_over: Sequence[PassedOver]) -> list[str]:
    """Says what no file tells, what was passed over, and what was not compared."""
    live = [log for log in findings.logs if left_state(log.partition_dir) is None]
    unexplained = sum(log.account.unexplained is not None for log in live)
    places = Counter((findings.cluster_of(log), log.topic, log.partition) for log in live)
    copies = 0 if findings.replicas else sum(number > 1 for number in places.values())
    passed = passed_over_texts(passed_over)
    return [
        f"of {counted_noun(unexplained, 'log')} no file says whether what lay before the first segment was "
        "deleted or is lost"
        if unexplained
        else "",
        f"passed over: {', '.join(passed)}, which --include-deleted reads" if passed else "",
        f"{counted_noun(copies, 'partition')} in several folders, which were not compared "
        "(--source NAME=PATH for each disk)"
        if copies
        else "",
    ]


def _tails(logs: Sequence[ScannedLog]) -> Tails:
    cut = [log for log in logs if log.is_cut and not log.is_growing]
    torn, empty = ([log.tail_bytes for log in cut if log.tail == tail] for tail in ("torn", "zeros"))
    zeroed = [size for log in logs for size in log.zeroed]
    return Tails(
        *(len(torn), sum(torn), len(empty), sum(empty), len(zeroed), sum(zeroed)),
        claimed=claimed_by(log.torn for log in cut if log.torn),
        growing=sum(log.is_growing for log in logs),
    )


def _lost(findings: Findings, tails: Tails) -> list[str]:
    """Says what is lost in damage, in tails and between segments."""
    damages = [damage for _, damage in findings.damages]
    counted = sum(
        damage.last_lost - damage.first_lost + 1
        for damage in damages
        if damage.first_lost is not None and damage.last_lost is not None
    )
    open_ended = {
        (log.partition_dir, damage.first_lost)
        for log, damage in findings.damages
        if damage.first_lost is not None and damage.last_lost is None
    }
    diverged = sum(row["diverged_from"] is not None for row in findings.replicas)
    return [
        f"what {diverged:,} of {counted_noun(len(findings.replicas), 'copy')} "
        f"{'has' if diverged == 1 else 'have'} of another history than the true one"
        if diverged
        else "",
        f"at most {counted_noun(counted, 'offset')} in damage" if counted else "",
        f"the end of {counted_noun(len(open_ended), 'log')}, of unknown length" if open_ended else "",
        *tails.lost,
        *lost_texts(unseen for _, unseen in findings.missing),
        "the records at these offsets, if that base offset is right" if _unconfirmed(findings.logs) else "",
    ]


def _unconfirmed(logs: Sequence[ScannedLog]) -> list[str]:
    """Says which last batches have a base offset that nothing confirms and that leaves offsets out."""
    ends = [(log.topic, log.partition, *log.unconfirmed) for log in logs if log.unconfirmed]
    if not ends:
        return []
    topic, partition, first, base = ends[0]
    more = f", and so in {counted_noun(len(ends) - 1, 'other log')}" if len(ends) > 1 else ""
    return [
        f"nothing confirms the base offset {base:,} of the last batch of {topic}-{partition}, and no batch "
        f"has the offsets from {first:,} on before it{more}"
    ]


# What to do next

_LOCAL = "file://"
_BROKER = "--bootstrap-server HOST:9092"
_MOST, _SOURCES = 5, 4
Step = tuple[str, str]  # a comment, and a command


def next_steps(findings: Findings) -> list[str]:
    """Returns the lines of at most _MOST steps: those of each kind in turn, the largest loss first."""
    # of named copies another one may have what a copy lacks: ``recover`` knows what is lost
    is_only = not findings.replicas
    kinds = [
        _decoding(findings),
        _comparing(findings),
        [_moving(log, damage) for log, damage in _resumable(findings) if is_only],
        [_ending(*each) for each in _hanging(findings)],
        [_replacing(log) for log in _cut(findings) if is_only],
        [
            _looking(log, contradiction)
            for log, contradiction in findings.contradictions
            if contradiction.segment.startswith(_LOCAL)
        ],
    ]
    in_turn = [kind[at] for at in range(max(map(len, kinds))) for kind in kinds if at < len(kind)]
    comments: dict[str, str] = {}
    for comment, command in in_turn:  # damaged ranges side by side, and copies, are left by one command
        comments.setdefault(command, comment)
    lines = [line for command, comment in [*comments.items()][:_MOST] for line in (comment, command)]
    if len(comments) > _MOST:
        more = counted_noun(len(comments) - _MOST, "step")
        lines.append(f"# and {more} like these; the tables above have all places")
    return lines


def _decoding(findings: Findings) -> list[Step]:
    """Returns the command that decodes the sources; of several clusters one for each, into its own lake."""
    what, command, lake = "decode all records, batches and damaged ranges into tables", "decode", "lake"
    if findings.replicas:
        what, command, lake = "merge the copies into one log, and list what is lost", "recover", "recovered"
    if len(findings.clusters) > 1:
        return [
            (
                f"# {what}, of cluster {shell_word(cluster)} alone: one lake is meant for one cluster",
                _command(command, findings, paths, f"lake-{cluster}"),
            )
            for cluster, paths in findings.clusters.items()
        ]
    paths = findings.sources
    if find_spec("pyspark") is None:
        what += f"; before it, {install('spark')}"
    if len(paths) > _SOURCES:
        what += f"; --source once more for each of the other {len(paths) - 1} paths"
        paths = paths[:1]
    return [(f"# {what}", _command(command, findings, paths, lake))]


def _command(command: str, findings: Findings, paths: Sequence[str], lake: str) -> str:
    """Returns the command line that runs a command on what was scanned."""
    words: list[str | tuple[str, str]] = [("--source", path) for path in paths]
    if findings.named is not None:
        topic, partition = findings.named
        words += [("--topic", topic), ("--partition", str(partition))]
    if findings.swap_files or SWAP in findings.skipped:
        words.append("--include-swap")
    return command_line(f"{invocation()} {command}", *words, ("--lake", lake))


def _comparing(findings: Findings) -> list[Step]:
    """Returns the command that compares the copies of partitions, if each source may be a broker's disk."""
    is_few = 1 < len(findings.sources) <= _SOURCES
    if findings.replicas or not findings.copies or not is_few or len(findings.clusters) > 1:
        return []
    named = [f"broker{number}={source}" for number, source in enumerate(findings.sources, 1)]
    return [
        ("# compare the copies: each broker's disk by a name", command_line(f"{invocation()} scan", *named)),
    ]


def _looking(log: ScannedLog, contradiction: Contradiction) -> Step:
    word = "base offset" if contradiction.is_offset else "leader epoch"
    file, position = contradiction.segment.removeprefix(_LOCAL), ("--position", str(contradiction.position))
    return (
        f"# see the batch of {_name(log)} whose {word} the log around it contradicts",
        command_line(f"{invocation()} inspect", file, position),
    )


def _resumable(findings: Findings) -> list[tuple[ScannedLog, DamagedRange]]:
    """Returns damaged ranges after which a consumer can go on, the largest loss first."""
    ranges = [
        (log, damage)
        for log, damage in findings.damages
        if damage.first_lost is not None and damage.next_offset
    ]
    return sorted(ranges, key=lambda each: (each[1].first_lost or 0) - (each[1].next_offset or 0))


def _moving(log: ScannedLog, damage: DamagedRange) -> Step:
    return (
        f"# move a consumer group that stops at offset {damage.first_lost} of {_name(log)} past "
        f"the damage ({shell_word(log.partition_dir)})",
        command_line(
            f"kafka-consumer-groups.sh {_BROKER} --group GROUP",
            *(("--topic", f"{log.topic}:{log.partition}"), "--reset-offsets"),
            *(("--to-offset", str(damage.next_offset)), "--execute"),
        ),
    )


def _hanging(findings: Findings) -> list[tuple[ScannedLog, OpenTransaction, Ending]]:
    open_ = [
        (log, transaction, transaction.ending)
        for log in findings.logs
        for transaction in log.open_transactions
        if transaction.ending is not None and transaction.is_hanging
    ]
    return sorted(open_, key=lambda each: each[2].certainty != CERTAIN)


def _ending(log: ScannedLog, transaction: OpenTransaction, ending: Ending) -> Step:
    """Returns the command that aborts a transaction that certainly hangs, else one that finds out."""
    name = _name(log)
    place = ("--topic", log.topic), ("--partition", str(log.partition))
    if ending.state in (ONGOING, PREPARED) or ending.commits_in_two_phases:
        of_id = ("--transactional-id", ending.transactional_id or "")
        return (
            f"# the transaction at offset {transaction.first_offset} of {name} holds back consumers: "
            f"{ending.remedy}",
            command_line(f"kafka-transactions.sh {_BROKER} describe", of_id),
        )
    if ending.certainty == CERTAIN:
        return (
            f"# abort a transaction that holds the last stable offset of {name} ({ending.why})",
            command_line(
                f"kafka-transactions.sh {_BROKER} abort",
                *(*place, ("--start-offset", str(transaction.first_offset))),
            ),
        )
    return (
        f"# before an abort, check whether the transaction at offset {transaction.first_offset} of {name} "
        f"hangs ({ending.certainty}: {ending.why})",
        command_line(f"kafka-transactions.sh {_BROKER} find-hanging", *place),
    )


def _cut(findings: Findings) -> list[ScannedLog]:
    """Returns logs that end in damage, in a torn batch, or in zeros alone."""
    return [
        log
        for log in findings.logs
        if (log.is_cut and not log.is_growing)
        or any(damage.first_lost is not None and damage.next_offset is None for damage in log.damages)
    ]


def _replacing(log: ScannedLog) -> Step:
    return (
        f"# this copy has no sound batch from offset {log.end} of {_name(log)} on "
        f"({shell_word(log.partition_dir)}): "
        "scan the folder of a replica. A broker that starts on this copy cuts the log there, and fetches "
        "the rest from the leader",
        command_line(f"{invocation()} scan", f"REPLICA/{log.topic}-{log.partition}"),
    )


def _name(log: ScannedLog) -> str:
    return shell_word(f"{log.topic}-{log.partition}")
