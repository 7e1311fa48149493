"""Decodes what is new in ``records`` into typed tables: one commit per table, none where nothing is new.

Each data file of ``records`` has one data file in its topic's typed table, which is named after it
(``udfs.values.typed.files.file_name``). So what is to be done is the difference of two lists, whatever
happened in between: new files are decoded, those of files that ``records`` no longer has are removed in the
same commit. A run that was killed leaves files that no table names, and the next run does its work.

Where new schemas change the type of a column, all of the topic's files are decoded again, and one commit
replaces the table with its new columns; so do choices (``TypedOptions.form``) other than the last run's.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, Schema
from deltalake.transaction import AddAction, RemoveAction

from kafka_log_lake.pipelines.engine.delta import (
    add_action,
    data_files,
    open_if_there,
    open_table,
    remove_action,
)
from kafka_log_lake.pipelines.lake.address import table_path
from kafka_log_lake.pipelines.lake.create import create_table
from kafka_log_lake.pipelines.lake.published import published_tables
from kafka_log_lake.pipelines.typed.records_files import RecordsFile, files_by_topic, first_rows, lake_sample
from kafka_log_lake.pipelines.typed.schemas import keep_schemas, kept_formats, registry_of_lake
from kafka_log_lake.pipelines.typed.tables import typed_topics
from kafka_log_lake.udfs.format.report_tables import VALUE_ERRORS
from kafka_log_lake.udfs.format.schema import RECORDS
from kafka_log_lake.udfs.storage.store import deltalake_options, open_store
from kafka_log_lake.udfs.values.internal.topics import TOPICS
from kafka_log_lake.udfs.values.schemas.registry import REGISTRY_TOPICS, Registry
from kafka_log_lake.udfs.values.typed import files as typed_files
from kafka_log_lake.udfs.values.typed.records import TypedRecords, plain_of_sample

log = logging.getLogger(__name__)

# ``SparkOnDemand.run_stage``
RunStage = Callable[[Callable[[], Any], Sequence[pa.Table]], pa.Table]
_KNOWN = "_types.json"  # next to a typed table's log: its types, their form, and what its plain payloads are
_COMMENTS = {
    "partition": "Partition",
    "offset": "Offset of the record in its partition",
    "timestamp": "Record timestamp; null: none, or outside years 1 to 9999",
    "headers": "Headers in order, with repeats; null where there are none",
    "segment": "Canonical URI of the segment file",
    "key": "Key by its schema; null: none, or an error, which is in value_errors",
    "value": "Value by its schema; null: a tombstone, or an error, which is in value_errors",
    "is_tombstone": "Whether the record has no value",
    "key_schema_id": "Id of the key's schema; null without one",
    "value_schema_id": "Id of the value's schema; null without one",
}


@dataclass
class TypedTopic:
    """Result of a run for the typed table of a topic.

    counts: [side, format or label, schema id, reason, payloads].
    """

    topic: str
    rows: int = 0
    errors: int = 0
    files: int = 0
    removed: int = 0
    counts: list[list[Any]] = field(default_factory=list)


class TypedJob:
    """Brings the typed tables of a lake up to date."""

    def __init__(
        self, lake: str, run_stage: RunStage, others: Sequence[Registry] = (), **choices: bool
    ) -> None:
        """Takes schemas from outside the lake (others), and infers, fills, is_flat of ``TypedOptions``.

        Formats of topics are those that the lake keeps.
        """
        self._lake, self._run_stage, self._others, self._choices = lake, run_stage, others, choices
        self.progress = ""  # how far ``run`` is, in words

    def run(self, is_meant: Callable[[str], bool]) -> list[TypedTopic]:
        """Decodes the topics that ``is_meant`` takes. Returns what changed, by topic."""
        records = published_tables(self._lake)[RECORDS.name]
        registry = registry_of_lake(records, [Registry(formats=kept_formats(self._lake)), *self._others])
        keep_schemas(self._lake, registry)
        known = [
            (schema.subject, schema.version, schema.id, schema.guid, schema.deleted)
            for schema in registry.schemas
        ]
        name = typed_files.signature(repr(known))
        options = typed_files.TypedOptions(self._lake, registry, name, **self._choices)
        # compaction may have left no record of a topic with a table
        files = dict.fromkeys(typed_topics(self._lake), ()) | files_by_topic(records)
        # those that Kafka and the registry keep for themselves get no typed table
        meant = sorted(filter(is_meant, files.keys() - {*TOPICS, *REGISTRY_TOPICS}))
        changed = []
        for number, topic in enumerate(meant, 1):
            self.progress = f"topic {number:,} of {len(meant):,}, {topic}"
            # deltalake decodes a path; the folder of ".." would be the lake's own
            if topic in (".", "..") or "%" in typed_files.table_folder(topic):
                log.warning("%s gets no typed table: Kafka takes no topic of this name", topic)
                continue
            updated = _Topic(self._lake, topic, files[topic], options, self._run_stage, records).update()
            if updated is not None:
                changed.append(updated)
        return changed


class _Topic:
    """The update of one topic's typed table and of its files in ``value_errors``."""

    def __init__(
        self,
        lake: str,
        topic: str,
        files: Sequence[RecordsFile],
        options: typed_files.TypedOptions,
        run_stage: RunStage,
        records: DeltaTable,
    ) -> None:
        self._lake, self._topic, self._files, self._records = lake, topic, files, records
        self._options, self._run_stage = options, run_stage
        self._path = table_path(lake, typed_files.table_folder(topic))
        self._table = open_if_there(self._path)
        self._errors = open_if_there(table_path(lake, VALUE_ERRORS.name))
        known = self._read_known() if self._table is not None else {}
        is_same = known.get("form", options.form) == options.form
        self._types: str = known.get("types", "") if is_same else ""
        self._plain: str = known.get("plain", "") if is_same else ""
        self._typed = _by_name(self._table, None)
        self._wrong = _by_name(self._errors, topic)
        # Another tool's OPTIMIZE: whose errors such a file has is not known, so all are found again
        self._are_merged = any(name == path for name, path in self._wrong.items())

    def update(self) -> TypedTopic | None:
        """Decodes files without a current typed file, and commits. Returns None if nothing is to be done."""
        known = {file.name for file in self._files}
        gone = [path for name, path in self._typed.items() if name not in known]
        if not gone and all(map(self._is_fresh, self._files)):
            return None
        if not (self._types and self._plain):
            self._look()
        done = self._decode_all()
        self._write_known()
        self._commit_errors(known, done)
        self._commit(gone, done)
        return TypedTopic(
            self._topic,
            sum(row["rows"] for row in done),
            sum(row["errors"] for row in done),
            len(done),
            len(gone),
            [count for row in done for count in json.loads(row["counts"])],
        )

    def _is_fresh(self, file: RecordsFile) -> bool:
        """Returns whether a typed file exists, with current types and no errors that new schemas may fix."""
        if self._are_merged:
            return False
        path = self._typed.get(file.name)
        wrong = self._wrong.get(file.name, "")
        may_mend = typed_files.RETRY in wrong and self._options.registry_name not in wrong
        signature = typed_files.signature(self._types + self._options.form)
        return path is not None and signature in path and not may_mend

    def _decode_all(self) -> list[typed_files.Done]:
        """Decodes files, some again, until all have the same types. Returns rows of DONE, one per file."""
        done: dict[str, typed_files.Done] = {}
        todo = [file for file in self._files if not self._is_fresh(file)]
        while todo:
            done |= {row["file"]: row for row in self._decode(todo)}
            before = self._types
            for row in done.values():
                self._types = typed_files.joined_types(self._types, row["types"])
            todo = [
                file
                for file in self._files
                if (done[file.path]["types"] if file.path in done else before) != self._types
            ]
        return list(done.values())

    def _decode(self, files: Sequence[RecordsFile]) -> list[typed_files.Done]:
        """Decodes these files once, with the types known so far. Returns rows of DONE."""
        tasks = [
            pa.table(
                [[self._topic], [f.partition], [f.path], [self._types], [self._plain]],
                schema=typed_files.TASK,
            )
            for f in files
        ]
        make = partial(typed_files.decode_files, self._options)
        done: list[typed_files.Done] = self._run_stage(make, tasks).to_pylist()
        return done

    def _look(self) -> None:
        """Recognises payloads without a schema by the topic's sample, and learns types that most files have.

        Types of JSON come from more rows, those of the first file with data: a file may hold only markers.
        """
        choices = self._options.infers, self._options.fills
        sample = lake_sample(self._records, self._topic)
        if sample.num_rows and not self._plain:
            self._plain = plain_of_sample(self._options.registry, self._topic, sample)
        typed_records = TypedRecords(self._options.registry, self._topic, self._plain, None, *choices)
        for batch in sample.combine_chunks().to_batches():
            typed_records.learn(batch)
        for file in self._files if self._options.infers else ():
            names = (*typed_files.SIDES, "headers", "is_control")
            rows = first_rows(self._lake, file, typed_files.BATCH_ROWS, names)
            data = rows.filter(pc.invert(rows.column("is_control")))
            for batch in data.combine_chunks().to_batches():
                typed_records.learn(batch)
            if data.num_rows:
                break
        self._types = typed_files.types_text(typed_records.types)

    def _read_known(self) -> dict[str, str]:
        system, folder = open_store(self._path)
        with suppress(FileNotFoundError, ValueError), system.open_input_stream(f"{folder}/{_KNOWN}") as file:
            known = json.loads(file.read())
            return known if isinstance(known, dict) else {}
        return {}

    def _write_known(self) -> None:
        """Writes types, form and plain before the commit: a run that is killed in between decodes again."""
        system, folder = open_store(self._path)
        system.create_dir(folder, recursive=True)
        known = {"types": self._types, "plain": self._plain, "form": self._options.form}
        with system.open_output_stream(f"{folder}/{_KNOWN}") as file:
            file.write(json.dumps(known).encode())

    def _commit_errors(self, known: Collection[str], done: Sequence[typed_files.Done]) -> None:
        """Commits the errors before the typed table: a run that is killed in between does both again."""
        again = {typed_files.signature(row["file"]) for row in done}
        removed = [path for name, path in self._wrong.items() if name not in known or name in again]
        new = [row for row in done if row["error_path"]]
        if not new and not removed:
            return
        create_table(self._lake, VALUE_ERRORS)
        table = open_table(table_path(self._lake, VALUE_ERRORS.name))
        values = {"topic": self._topic}
        actions: list[AddAction | RemoveAction] = [
            *(remove_action(path, 0, values) for path in removed),
            *(
                add_action(row["error_path"], row["error_bytes"], values, {"numRecords": row["errors"]})
                for row in new
            ),
        ]
        table.create_write_transaction(actions, "append", table.schema(), ["topic"])

    def _commit(self, gone: Sequence[str], done: Sequence[typed_files.Done]) -> None:
        columns = typed_files.typed_schema(typed_files.types_of(self._types), self._options.is_flat)
        schema = Schema.from_arrow(_full_schema(columns))
        if self._table is None:
            self._table = DeltaTable.create(
                self._path,
                schema,
                partition_by=["partition"],
                description=f"Keys and values of the topic {self._topic} by their schemas",
                configuration={"delta.enableDeletionVectors": "false"},
                storage_options=deltalake_options(self._path),
                raise_if_key_not_exists=False,
            )
        adds = [
            add_action(
                row["path"], row["bytes"], {"partition": row["partition"]}, {"numRecords": row["rows"]}
            )
            for row in done
        ]
        old = [
            self._typed[name] for row in done if (name := typed_files.signature(row["file"])) in self._typed
        ]
        of = {path: path.partition("/")[0].removeprefix("partition=") for path in (*gone, *old)}
        removes = [remove_action(path, 0, {"partition": partition}) for path, partition in of.items()]
        # Where columns change, all files are new: one commit takes the old ones and brings the schema
        is_same = str(self._table.schema().to_json()) == str(schema.to_json())
        mode = "append" if is_same else "overwrite"
        actions: list[AddAction | RemoveAction] = [*(removes if is_same else []), *adds]
        self._table.create_write_transaction(actions, mode, schema, ["partition"])


def _by_name(table: DeltaTable | None, topic: str | None) -> dict[str, str]:
    """Returns the file of ``records`` -> the path of a table's file made of it. topic: None for all.

    A file that another tool merged from several is under its own path.
    """
    if table is None:
        return {}
    actions = data_files(table)
    paths = actions.column("path").to_pylist()
    topics = actions.column("partition.topic").to_pylist() if topic is not None else [None] * len(paths)
    of_topic = [path for path, of in zip(paths, topics, strict=True) if of == topic]
    return {typed_files.made_of(path) or path: path for path in of_topic}


def _full_schema(columns: pa.Schema) -> pa.Schema:
    """Returns the columns of the table, with comments. columns: of its data files."""
    fields = [pa.field("partition", pa.int32()), *columns]
    return pa.schema([field.with_metadata({"comment": _comment(field.name)}) for field in fields])


def _comment(name: str) -> str:
    if name in _COMMENTS:
        return _COMMENTS[name]
    side, _, field_name = name.partition("_")
    return f"Field {field_name} of the {side}; null: none, or the {side} is null"
