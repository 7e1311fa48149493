"""Adds what lies in tiered storage to the copies of partitions: a copy named tier, of every segment that
counts.

Leader epochs decide which of its batches are true, as of any copy: a segment whose copy was finished may be
of a history that lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kafka_log_lake.pipelines.listing.naming import PartitionFolder
from kafka_log_lake.pipelines.listing.remote_metadata import remote_metadata
from kafka_log_lake.pipelines.recover.entries import Absent, Copy, SegmentFile
from kafka_log_lake.pipelines.tier.candidates import NO_END, Candidate
from kafka_log_lake.pipelines.tier.index import index_of
from kafka_log_lake.pipelines.tier.objects import list_tier

TIER = "tier"  # name and state of such a copy


def tier_copies(places: Sequence[str], log_dirs: Sequence[str]) -> Iterator[tuple[PartitionFolder, Copy]]:
    """Yields the copy of each log in the tier. log_dirs: local folders that may have metadata.

    Raises a UserError for a tier that can't be listed.
    """
    metadata = [known for log_dir in log_dirs if (known := remote_metadata(log_dir)) is not None]
    index = index_of(list_tier(places), metadata)
    for place, by_id in index.logs.items():
        for topic_id, of in by_id.items():
            for number, chain in enumerate(_chains(of.named or of.others)):
                name = TIER if number == 0 else f"{TIER}-{number + 1}"
                yield place, _copy(name, index.tier.roots[0], topic_id, chain)


def _chains(segments: Sequence[Candidate]) -> list[list[Candidate]]:
    """Splits segments into lists in which none overlaps another and epochs do not fall: histories of
    leaders.
    """
    chains: list[list[Candidate]] = []
    for candidate in sorted(segments, key=lambda each: (each.first, each.epochs, each.uri)):
        able = [chain for chain in chains if _may_follow(candidate, chain[-1])]
        chain = next(
            (chain for chain in able if _end(chain[-1]) + 1 == candidate.first), able[0] if able else None
        )
        if chain is None:
            chains.append([candidate])
        else:
            chain.append(candidate)
    return chains


def _may_follow(candidate: Candidate, before: Candidate) -> bool:
    epochs, others = candidate.own_epochs(), before.own_epochs()
    return _end(before) < candidate.first and (not epochs or not others or epochs[0][0] >= others[-1][0])


def _end(candidate: Candidate) -> int:
    """Returns the last offset of a segment, by metadata or by its batches."""
    if candidate.last != NO_END:
        return candidate.last
    return int(candidate.batches["last"].max()) if len(candidate.batches) else candidate.first - 1


def _copy(name: str, root: str, topic_id: str | None, segments: Sequence[Candidate]) -> Copy:
    copy = Copy(0, name, None, root, TIER, topic_id)
    for candidate in sorted(segments, key=lambda each: (each.base, each.uri)):
        if candidate.problem is None:
            copy.files.append(
                SegmentFile(candidate.uri, candidate.base, candidate.length, candidate.modified)
            )
        else:
            copy.absent.append(
                Absent(candidate.first, candidate.last, f"{candidate.name}: {candidate.problem}")
            )
            copy.unreadable.append(f"{candidate.name}: {candidate.problem}")
    return copy
