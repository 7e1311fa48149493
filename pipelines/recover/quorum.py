"""``recover --metadata``: compares the metadata logs of controllers, and finds the state they agreed on.

A record of the metadata log is committed once a majority of the voters has it. The voters are those of the
last VotersRecord in the log (KIP-853); in a quorum without one those that ``quorum-state`` names.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence, Sized
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.cli.terminal import counted_noun
from kafka_log_lake.pipelines.listing.cluster_state import MISSING, ClusterState
from kafka_log_lake.pipelines.listing.identity import QUORUM_STATE
from kafka_log_lake.pipelines.listing.metadata_log import (
    COLUMNS,
    decoded_records,
    is_whole,
    snapshot_end,
    snapshots,
    state_of,
)
from kafka_log_lake.pipelines.listing.naming import PartitionFolder
from kafka_log_lake.pipelines.listing.uris import local_path
from kafka_log_lake.pipelines.recover.bounds import END, epochs_of_batches
from kafka_log_lake.pipelines.recover.broker_disk import write_identity
from kafka_log_lake.pipelines.recover.compare import Compared, Known, Task, compare_task, store_entries
from kafka_log_lake.pipelines.recover.entries import Copy
from kafka_log_lake.pipelines.recover.history import Certainty
from kafka_log_lake.pipelines.recover.log_writer import copy_log, healed_log, records_of, write_log
from kafka_log_lake.pipelines.recover.sources import Inventory
from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.indexes.kraft_snapshot import BOOTSTRAP, METADATA_TOPIC, snapshot_id
from kafka_log_lake.udfs.storage.regular_file import MOST_INDEX_BYTES, MOST_SMALL_BYTES, read_regular

_PLACE = PartitionFolder(METADATA_TOPIC, 0)
NO_DIRECTORY = "A" * 22  # of a voter that was one before voters had directories


@dataclass
class Quorum:
    """The compared metadata logs of a quorum.

    voters: node id -> directory id, "" where it may be any; empty where nothing names them. unread: of the
    records that may name other ones, which can't be read. committed: the offset after the last record that a
    majority of the voters has; None where the disks of fewer than a majority are here. ends: the offset after
    the last true record of each copy. snapshot: path of the newest snapshot of the true history, None without
    one.
    """

    compared: Compared
    voters: dict[int, str]
    unread: str
    committed: int | None
    ends: dict[str, int]
    snapshot: str | None

    @property
    def missing(self) -> list[int]:
        """Returns the node ids of voters whose disks are not here."""
        return sorted(
            self.voters.keys() - {copy.broker_id for copy in self.compared.copies if self.is_voter(copy)}
        )

    def is_voter(self, copy: Copy) -> bool:
        """Returns whether a copy is the log of a voter: another disk under its node id is none."""
        return _is_voter(copy, self.voters)

    @property
    def doubts(self) -> list[str]:
        """Returns sentences on why the history, or what of it is committed, is not certain."""
        texts = list(self.compared.history.doubts)
        if self.missing:
            texts.append(f"copies missing: controller {', '.join(map(str, self.missing))}")
        if not self.voters:
            texts.append("no quorum-state and no record names the voters: a controller's copy may be missing")
        if self.unread:
            texts.append(f"the voters may be others: {self.unread}")
        return texts

    @property
    def sure(self) -> Certainty:
        """Returns how certain the history is: CERTAIN only with the disks of all voters."""
        sure = self.compared.history.sure
        return Certainty.LIKELY if sure == Certainty.CERTAIN and self.doubts else sure

    @property
    def end(self) -> int:
        """Returns the offset after the true history that the disks hold."""
        return max(self.compared.history.end, snapshot_end(self.snapshot))


def compare_quorum(inventory: Inventory, settings: Settings) -> Quorum:
    """Compares the copies of the metadata log. Raises a UserError where no source has one."""
    copies = inventory.copies.get(_PLACE)
    if not copies:
        raise UserError("no folder __cluster_metadata-0 in the sources: name the disks of controllers")
    with tempfile.TemporaryDirectory(prefix="kafka-log-lake-") as folder:
        stored = store_entries(inventory, [_PLACE], settings, folder)
        compared = compare_task(Task(0, _PLACE, copies, stored[_PLACE], Known()))
    ends = {
        copy.name: max(compared.true_end(copy) or 0, snapshot_end(_newest_snapshot([copy])))
        for copy in copies
    }
    snapshot = _newest_snapshot([copy for copy in copies if copy.number in compared.history.holders])
    control = _control_records(compared, snapshot)
    voters = control.voters or {voter: "" for copy in copies for voter in _fixed_voters(copy)}
    return Quorum(compared, voters, control.unread_text, _committed(copies, ends, voters), ends, snapshot)


def _control_records(compared: Compared, snapshot: str | None) -> ClusterState:
    """Returns what the snapshot and the control records of the true history say."""
    log = healed_log(compared)
    control = log.batches[log.batches["attributes"] & f.CONTROL_MASK != 0]
    batches = records_of(dataclasses.replace(log, batches=control), COLUMNS)
    state = state_of(snapshot, decoded_records(batch for _, batch in batches))
    state.unread[MISSING] = 0  # the records between control records
    return state


def _is_voter(copy: Copy, voters: Mapping[int, str]) -> bool:
    directory = voters.get(copy.broker_id) if copy.broker_id is not None else None
    return directory is not None and (
        directory in ("", NO_DIRECTORY, copy.directory_id) or not copy.directory_id
    )


def _fixed_voters(copy: Copy) -> list[int]:
    """Reads the node ids of voters from ``quorum-state``; [] if it is missing or the voters can change."""
    path = os.path.join(local_path(copy.folder) or "", QUORUM_STATE)
    try:
        said = json.loads(read_regular(path, MOST_SMALL_BYTES))
        return [int(voter["voterId"]) for voter in said.get("currentVoters", ())]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []


def _committed(copies: Sequence[Copy], ends: dict[str, int], voters: Mapping[int, str]) -> int | None:
    """Returns the highest offset that a majority reaches; None without the disks of a majority.

    voters: as of a Quorum; empty where every disk counts as one.
    """
    held: dict[int | str, int] = {}
    for copy in copies:
        key = copy.broker_id if copy.broker_id is not None else copy.name
        if not voters or _is_voter(copy, voters):
            held[key] = max(held.get(key, 0), ends[copy.name])
    count = len(voters) or len(held)
    reached = sorted(held.values(), reverse=True)[count // 2 :]
    return reached[0] if reached else None


def _snapshots(copies: Sequence[Copy]) -> list[str]:
    """Returns the paths of all copies' snapshots, the newest last."""
    paths = [path for copy in copies for path in snapshots(local_path(copy.folder) or "")]
    return sorted(paths, key=lambda path: (snapshot_id(os.path.basename(path)) or (), path))


def _newest_snapshot(copies: Sequence[Copy], end: int = END) -> str | None:
    """Returns the newest snapshot up to an offset whose records can all be read; None without one.

    A controller makes it of committed records alone.
    """
    known = (path for path in reversed(_snapshots(copies)) if snapshot_end(path) <= end)
    return next(filter(is_whole, known), None)


def state_at(quorum: Quorum, offset: int | None) -> ClusterState:
    """Returns the state of the cluster by the true history before an offset; None: by all of it.

    Raises a UserError for an offset that the history does not reach, or no longer has.
    """
    end = quorum.end if offset is None else offset
    snapshot = _newest_snapshot(quorum.compared.copies, end)
    first = quorum.compared.history.start
    if end > quorum.end or (snapshot is None and first > 0) or snapshot_end(snapshot) < min(first, end):
        raise UserError(f"--at {end}: the metadata logs have offsets from {first} to {quorum.end}")
    batches = (batch for _, batch in records_of(healed_log(quorum.compared), COLUMNS))
    return state_of(snapshot, decoded_records(batches), end)


def write_controller(quorum: Quorum, folder: Path, inventory: Inventory, node_id: int) -> None:
    """Writes the disk of a controller that is the whole quorum: log, snapshot, ``meta.properties``.

    There is no ``quorum-state``: the controller takes the epoch from the log, and its voters from its
    settings.
    """
    log_folder = folder / f"{METADATA_TOPIC}-0"
    with tempfile.TemporaryDirectory(prefix="kafka-log-lake-") as listed:
        write_log(healed_log(quorum.compared), listed)
        copy_log(listed, str(log_folder))
    if quorum.snapshot:
        shutil.copyfile(quorum.snapshot, log_folder / os.path.basename(quorum.snapshot))
    for log_dir in inventory.log_dirs:
        with suppress(OSError):
            (folder / BOOTSTRAP).write_bytes(read_regular(f"{log_dir}/{BOOTSTRAP}", MOST_INDEX_BYTES))
            break
    write_identity(folder, inventory, node_id)


def quorum_lines(quorum: Quorum, state: ClusterState) -> list[str]:
    """Returns what was found, as lines."""
    compared = quorum.compared
    lines = []
    for copy in compared.copies:
        epochs = ", ".join(f"{epoch}@{start}" for epoch, start in epochs_of_batches(copy))
        lost = int((copy.entries["is_sound"] & ~compared.history.is_true[copy.number]).sum())
        role = "voter" if quorum.is_voter(copy) else "observer"
        words = f"{copy.name:12} {role}, true history up to {quorum.ends[copy.name]}, epochs {epochs}"
        words += f"; {counted_noun(lost, 'batch')} of a history that lost" if lost else ""
        words += f"; {counted_noun(len(copy.hurts), 'damaged range')}" if copy.hurts else ""
        lines.append(words)
    best = max(compared.copies, key=lambda copy: (quorum.ends[copy.name], -copy.number))
    voters = ", ".join(map(str, quorum.voters)) or "not named by any quorum-state or record"
    held: dict[str, Sized] = {"topic": state.topics, "partition": state.partitions, "broker": state.brokers}
    held |= {"ACL": state.acls, "SCRAM user": state.users}
    counts = ", ".join(counted_noun(len(some), noun) for noun, some in held.items())
    counts += f"; {state.unread_text}" if state.unread_text else ""
    lines += [
        f"voters       {voters}",
        f"most complete  {best.name}: it reaches offset {quorum.end}; history {quorum.sure}",
        f"committed    {_committed_text(quorum)}",
        f"state        at {state.reached}: {counts}",
    ]
    lines += [f"doubt        {doubt}" for doubt in quorum.doubts]
    for gap in compared.healed.lost:
        last = "an unknown one" if gap.last is None else gap.last
        lines.append(f"lost         offsets {gap.first} to {last}: {gap.detail}")
    if quorum.committed is not None and quorum.end > quorum.committed:
        lines.append(
            f"uncommitted  offsets {quorum.committed} to {quorum.end - 1} are on too few of these disks"
        )
    return [*lines, _verdict(quorum, state)]


def _verdict(quorum: Quorum, state: ClusterState) -> str:
    """Returns the last line, which says whether the state is whole."""
    lost = len(quorum.compared.healed.lost)
    reasons = [
        state.unread_text,
        f"no copy has {counted_noun(lost, 'range')} of the log" if lost else "",
        "it is not known which records a majority has" if quorum.committed is None else "",
        f"the history is {quorum.sure}" if quorum.sure != Certainty.CERTAIN else "",
    ]
    why = "; ".join(filter(None, reasons))
    at = f"the state at offset {state.reached}"
    return f"{at} may not be whole: {why}" if why else f"{at} is whole: each of its records was read"


def _committed_text(quorum: Quorum) -> str:
    if quorum.committed is not None:
        of_voters = "a majority of the voters has it on these disks"
        who = of_voters if quorum.voters else "most of these disks have it"
        return f"up to offset {quorum.committed}: {who}"
    here = len(quorum.voters) - len(quorum.missing)
    known = snapshot_end(quorum.snapshot)  # of committed records alone
    return (
        f"not known{f' beyond offset {known}' if known else ''}: the disks of {here} of {len(quorum.voters)} "
        "voters are here, no majority"
    )
