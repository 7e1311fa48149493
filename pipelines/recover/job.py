"""The flow of ``recover``: find copies, compare them, write a healed log per partition, decode, list losses.

The healed log lies in ``<lake>/_healed`` as a log directory whose segments are lists of pieces of the copies:
no payload is written before it is decoded. The sources are only read. A run that was killed is completed by
the next one: each file is replaced as a whole, and each table is written in one commit.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import write_deltalake

from kafka_log_lake.pipelines.cli.errors import UserError, writing
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.cli.status import phase
from kafka_log_lake.pipelines.cli.terminal import counted_noun
from kafka_log_lake.pipelines.decode.job import refuse_lake_in_source
from kafka_log_lake.pipelines.decode.summary import Summary
from kafka_log_lake.pipelines.engine.delta import open_table, read_rows
from kafka_log_lake.pipelines.engine.pool import Map
from kafka_log_lake.pipelines.lake.address import is_lake, lake_address, log_address, table_path
from kafka_log_lake.pipelines.lake.create import create_table, create_tables
from kafka_log_lake.pipelines.lake.intents import Intents
from kafka_log_lake.pipelines.listing.list_segments import ListingRows, TopicFilter
from kafka_log_lake.pipelines.listing.listing import Listing
from kafka_log_lake.pipelines.listing.naming import File, PartitionFolder
from kafka_log_lake.pipelines.listing.uris import canonical, parse_source
from kafka_log_lake.pipelines.plan.slices import LITTLE
from kafka_log_lake.pipelines.recover import rows
from kafka_log_lake.pipelines.recover.compare import tasks
from kafka_log_lake.pipelines.recover.losses import lost_records
from kafka_log_lake.pipelines.recover.mirrors import original
from kafka_log_lake.pipelines.recover.partition import HealedLog, Partition, heal_partition
from kafka_log_lake.pipelines.recover.placement import Placements, placements
from kafka_log_lake.pipelines.recover.restore import Loss, Policy, count_losses, policy_of, register_topics
from kafka_log_lake.pipelines.recover.sources import Inventory, find_copies
from kafka_log_lake.pipelines.sql.database import open_database
from kafka_log_lake.pipelines.tasks.slice_rows import DIRECT
from kafka_log_lake.pipelines.tier.keys import use_keys
from kafka_log_lake.udfs.batches.clocks import LIKELY
from kafka_log_lake.udfs.batches.log_start import BY_COPIES, LogStart
from kafka_log_lake.udfs.format.file_names import file_name
from kafka_log_lake.udfs.format.recovery_tables import HEALED_BATCHES, LOST_RANGES, LOST_RECORDS
from kafka_log_lake.udfs.format.schema import SEGMENTS, Table
from kafka_log_lake.udfs.indexes.kraft_snapshot import METADATA_TOPIC
from kafka_log_lake.udfs.storage.byte_source import PIECES

HEALED = "_healed"
_LOSING = "_losing"  # files of one run, below HEALED


@dataclass
class Recovered:
    """The results of a run.

    placements: what the metadata logs of the sources say. summary: of decoding the healed log. lost_records:
    number of rows in the table; losses: its records, each counted once.
    """

    lake: str
    inventory: Inventory
    placements: Placements = field(default_factory=Placements)
    summary: Summary = field(default_factory=lambda: Summary("", ""))
    partitions: list[Partition] = field(default_factory=list)
    lost_records: int = 0
    losses: list[Loss] = field(default_factory=list)

    @property
    def logs(self) -> dict[tuple[str, int], HealedLog]:
        """Returns the healed logs by topic and partition."""
        return {
            (partition.topic, partition.partition): partition.log
            for partition in self.partitions
            if partition.log is not None
        }

    @property
    def policies(self) -> dict[str, Policy]:
        """Returns the cleanup policy of each topic, by its setting or by its logs."""
        cleaned: dict[str, bool] = {}
        for partition in self.partitions:
            cleaned[partition.topic] = cleaned.get(partition.topic, False) or partition.is_compacted
        state = self.placements.state
        return {topic: policy_of(topic, state, was_cleaned) for topic, was_cleaned in cleaned.items()}

    @property
    def losing(self) -> int:
        """Returns the number of records that only losing histories have."""
        return sum(loss.records for loss in self.losses)

    @property
    def doubts(self) -> list[str]:
        """Returns each doubt once, with the partitions that it is about before it."""
        places: dict[str, list[str]] = defaultdict(list)
        for partition in self.partitions:
            for doubt in dict.fromkeys(partition.doubts):
                places[doubt].append(f"{partition.topic}-{partition.partition}")
        texts = [f"{_some(of)}: {doubt}" for doubt, of in places.items()]
        state = self.placements.state
        if state is not None and state.unread_text and not state.may_lack_partitions:
            texts.append(f"__cluster_metadata of {self.placements.disk} has {state.unread_text}")
        return texts

    @property
    def certainty(self) -> Counter[str]:
        """Counts partitions by how certain their history is."""
        return Counter(partition.sure for partition in self.partitions)

    def rows(self, table: Table) -> list[rows.Row]:
        """Returns the rows of a table of ``rows.REPORTED``."""
        return [row for partition in self.partitions for row in partition.rows[table.name]]

    def total(self, name: str) -> int:
        """Returns the sum of a numeric field of ``Partition``, by its name."""
        return sum(getattr(partition, name) for partition in self.partitions)

    @property
    def is_damaged(self) -> bool:
        """Returns whether a copy is damaged, healed or not, or the true log lacks something."""
        return bool(self.total("damaged") or self.total("unreadable") or self.rows(LOST_RANGES))

    def warnings(self) -> list[str]:
        """Returns what a reader should know who sees only the summary of the healed log."""
        texts = [*self.inventory.warnings, *self.doubts]
        for count, noun, rest, table in (
            (self.total("damaged"), "damaged range", "in copies", "replica_report.damage"),
            (self.total("unreadable"), "segment", "that can't be read", "replica_report.contradicted"),
            (len(self.rows(LOST_RANGES)), "range of offsets", "that no copy has", "lost_ranges"),
            (self.losing, "record", "that losing histories alone have", "lost_records"),
        ):
            if count:
                texts.append(f"{counted_noun(count, noun)} {rest}: {table}")
        return texts


def _some(places: list[str]) -> str:
    """Names one partition, or the first one and how many more."""
    return places[0] if len(places) == 1 else f"{places[0]} and {len(places) - 1:,} more"


Decode = Callable[[Settings, Listing | None], Summary]


def recover(settings: Settings, decode: Decode, run: Map) -> Recovered:
    """Heals the logs in ``settings.source``, decodes them into the lake, and writes ``recovery_tables``.

    decode: the job that decodes a log directory, or the segments of a listing, into a lake. run: where
    partitions are compared and healed.
    Raises a UserError for a source or a lake that can't be used.
    """
    address = lake_address(settings.require_lake())
    if "://" in address:
        raise UserError(f"--lake {address}: recover writes a log too, so its lake is a local folder")
    refuse_lake_in_source(address, [parse_source(source).path for source in settings.source])
    use_keys(settings.tier_key)
    with phase("listing"):
        chosen = TopicFilter(settings.topics, settings.exclude_topics)
        inventory = find_copies(settings.source, chosen, settings.include_deleted, settings.tier)
    if not any(place.topic != METADATA_TOPIC for place in inventory.copies):
        reasons = ", ".join(f"{count} x {why}" for why, count in sorted(inventory.skipped.items()))
        raise UserError(f"no copy of a partition in {', '.join(settings.source)}: {reasons}")
    _refuse_other_logs(address)
    done = Recovered(address, inventory, placements(inventory))
    folder = f"{address}/{HEALED}"
    with Intents(address).lock():
        create_tables(address)
        _heal(done, settings, folder, run)
    done.summary = decode(_of_healed(settings, folder), _listing(done.logs))
    if settings.with_copies:
        _decode_copies(done, settings, decode)
    with Intents(address).lock(), phase("listing what is lost"):
        _write_tables(done)
        done.losses = _losses(address, done.policies, done.lost_records > 0)
        shutil.rmtree(f"{folder}/{_LOSING}", ignore_errors=True)
    return done


def _heal(done: Recovered, settings: Settings, folder: str, run: Map) -> None:
    """Compares copies and writes healed logs, a partition per worker or task; small sources are done here."""
    copies = (copy for some in done.inventory.copies.values() for copy in some)
    if sum(file.length for copy in copies for file in copy.files) < LITTLE:
        run = map
    losing = f"{folder}/{_LOSING}"
    shutil.rmtree(losing, ignore_errors=True)
    os.makedirs(losing)
    heal = partial(heal_partition, folder=folder, losing=losing)
    with phase("comparing copies"):
        done.partitions += run(heal, tasks(done.inventory, settings, losing, done.placements, run))
    kept = {f"{topic}-{partition}" for topic, partition in done.logs} | {_LOSING}
    for name in os.listdir(folder):
        if name not in kept:  # a partition that no source has any more
            shutil.rmtree(f"{folder}/{name}")


def _decode_copies(done: Recovered, settings: Settings, decode: Decode) -> None:
    """Decodes the disks of each source name into a lake of their own, which ``log_address`` names."""
    disks: dict[str, list[str]] = defaultdict(list)
    for log_dir, (name, _) in done.inventory.log_dirs.items():
        disks[name].append(original(log_dir))
    for name, log_dirs in sorted(disks.items()):
        lake = log_address(done.lake, name)
        of_copies = dataclasses.replace(
            settings, source=tuple(log_dirs), lake=lake, with_copies=False, json=False
        )
        decode(of_copies, None)


def _refuse_other_logs(address: str) -> None:
    """Raises a UserError if the lake holds another log than a healed one: it would have records twice."""
    if is_lake(address):
        healed = canonical(f"{address}/{HEALED}/")
        ledger = read_rows(table_path(address, SEGMENTS.name), SEGMENTS.arrow_schema(), ["partition_dir"])
        folders = ledger.column(0).to_pylist()
        other = next((folder for folder in folders if not folder.startswith(healed)), None)
        if other is not None:
            raise UserError(f"--lake {address} holds {other}, not a healed log: choose another lake")


def _of_healed(settings: Settings, folder: str) -> Settings:
    """Returns the settings that decode the healed log, as any other log: only what has changed."""
    return dataclasses.replace(
        settings,
        source=(folder,),
        topics=None,
        exclude_topics=None,
        verify_content=True,
        read=DIRECT,  # Spark's binaryFile gives lists of pieces as they are
        json=False,
    )


def _listing(logs: Mapping[tuple[str, int], HealedLog]) -> Listing:
    """Makes a listing of the segments of healed logs."""
    listed = ListingRows()
    for place, log in logs.items():
        segments = [
            (segment.base, File(file_name(segment.base), segment.length, segment.modified, True))
            for segment in log.segments
        ]
        lists = {
            file_name(segment.base): f"{segment.uri}{PIECES}" for segment in log.segments if segment.length
        }
        listed.add(PartitionFolder(*place), canonical(log.folder), log.topic_id, segments, lists)
    starts = {canonical(log.folder): LogStart(log.start, BY_COPIES, LIKELY) for log in logs.values()}
    return Listing(listed.sorted_table(), starts=starts)


def _write_tables(done: Recovered) -> None:
    schema = HEALED_BATCHES.arrow_schema()
    files = [partition.healed for partition in done.partitions if partition.healed]
    healed = (batch for file in files for batch in pq.ParquetFile(file).iter_batches())
    replace_table(done.lake, HEALED_BATCHES, pa.RecordBatchReader.from_batches(schema, healed))
    for table in rows.REPORTED:
        replace_table(done.lake, table, pa.Table.from_pylist(done.rows(table), table.arrow_schema()))
    reader = lost_records(done.lake, [file for partition in done.partitions for file in partition.losing])

    def counted() -> Iterator[pa.RecordBatch]:
        for batch in reader:
            done.lost_records += batch.num_rows
            yield batch

    replace_table(done.lake, LOST_RECORDS, pa.RecordBatchReader.from_batches(reader.schema, counted()))


def _losses(lake: str, policies: Mapping[str, Policy], has_any: bool) -> list[Loss]:
    """Counts the records that only losing histories have."""
    if not has_any:
        return []
    database = open_database(lake, "FROM lost_records")
    register_topics(database, policies)
    return count_losses(database)


def write_tables(lake: str, tables: Iterable[tuple[Table, pa.Table]]) -> None:
    """Replaces all rows of tables of a lake, which is created if it is missing."""
    address = lake_address(lake)
    with Intents(address).lock():
        create_tables(address)
        for table, rows in tables:
            replace_table(address, table, rows)


def replace_table(address: str, table: Table, data: pa.Table | pa.RecordBatchReader) -> None:
    """Replaces all rows of a table in one commit; the table is created if it is missing."""
    create_table(address, table)
    write_deltalake(open_table(table_path(address, table.name)), data, mode="overwrite")


def refuse_in_source(option: str, path: str, sources: tuple[str, ...]) -> None:
    """Raises a UserError if a folder to be written lies in a source."""
    for source in sources:
        root = os.path.realpath(parse_source(source).path)
        if os.path.commonpath([root, os.path.realpath(path)]) == root:
            raise UserError(f"{option} {path} lies in --source {source}: the sources are only read")


@contextmanager
def folder_to_write(path: str, sources: tuple[str, ...]) -> Iterator[Path]:
    """Yields a temporary folder that is renamed to ``path`` once it is complete.

    Raises a UserError if ``path`` is not empty or lies in a source.
    """
    refuse_in_source("--write", path, sources)
    target = Path(path).absolute()
    if os.path.exists(target) and (not target.is_dir() or any(target.iterdir())):
        raise UserError(f"--write {path} is not an empty folder: name a new one")
    made = target.with_name(f".{target.name}.unfinished")
    shutil.rmtree(made, ignore_errors=True)
    try:
        with writing(f"--write {path}"):
            made.mkdir(parents=True)
            yield made
            if target.exists():
                target.rmdir()
            os.sync()  # what is in a folder that has its name is on the disk
            made.rename(target)
    finally:
        shutil.rmtree(made, ignore_errors=True)
