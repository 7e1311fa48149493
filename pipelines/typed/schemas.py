"""Reads and keeps what typed values are read by: schemas, of ``_schemas`` and exported ones, and formats."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from kafka_log_lake.pipelines.engine.delta import open_if_there, read_declared, read_rows, sql_literal
from kafka_log_lake.pipelines.lake.address import table_path
from kafka_log_lake.pipelines.lake.intents import write_whole
from kafka_log_lake.pipelines.lake.published import published_tables
from kafka_log_lake.udfs.format.report_tables import SCHEMAS
from kafka_log_lake.udfs.format.schema import RECORDS
from kafka_log_lake.udfs.storage.store import deltalake_options, open_store
from kafka_log_lake.udfs.values.apps.topic_format import TopicFormats
from kafka_log_lake.udfs.values.schemas.encryption import described
from kafka_log_lake.udfs.values.schemas.payload import PayloadError
from kafka_log_lake.udfs.values.schemas.payloads import PayloadReader
from kafka_log_lake.udfs.values.schemas.registry import SCHEMAS_TOPIC, Reference, Registry, Schema

log = logging.getLogger(__name__)

# Which rows of ``records`` hold schemas, and in which columns
REGISTRY_ROWS = f"topic = {sql_literal(SCHEMAS_TOPIC)} AND NOT is_control"
REGISTRY_COLUMNS = ("segment", "offset", "key", "value")
_FORMATS = "_formats.json"  # next to the log of the table schemas: what --formats said last


def registry_of_lake(records: DeltaTable, others: Sequence[Registry] = ()) -> Registry:
    """Reads all schemas of a lake. records: the open table. others: from elsewhere (``sources``).

    Each copy of ``_schemas`` is a registry, and they are joined.
    """
    rows = read_rows(records, RECORDS.arrow_schema(), list(REGISTRY_COLUMNS), REGISTRY_ROWS)
    return registry_of_rows(rows, others)


def registry_of_rows(rows: pa.Table, others: Sequence[Registry] = ()) -> Registry:
    """Reads all schemas of a lake. rows: its REGISTRY_ROWS, with REGISTRY_COLUMNS. others: from elsewhere."""
    rows = rows.sort_by([("segment", "ascending"), ("offset", "ascending")])
    copies: dict[str, list[tuple[int, bytes | None, bytes | None]]] = {}
    for row in rows.to_pylist():
        copies.setdefault(row["segment"].rpartition("/")[0], []).append(
            (row["offset"], row["key"], row["value"])
        )
    registries = [
        Registry.from_records(sorted(copy, key=lambda record: record[0])) for copy in copies.values()
    ]
    return Registry.joined([*registries, *others])


def registry_of_state(address: str, at: str | None = None) -> Registry:
    """Reads the schemas of a state of a lake: of the table ``schemas``, else of its ``_schemas``.

    at: see ``published_tables``.
    """
    return registry_reader(address, published_tables(address, at))()


def registry_reader(lake: str, tables: Mapping[str, DeltaTable]) -> Callable[[], Registry]:
    """Returns a function that reads the schemas from a state's tables, and the formats that the lake keeps.

    It keeps no other table open.
    """
    held = {name: tables[name] for name in (SCHEMAS.name, RECORDS.name) if name in tables}
    if SCHEMAS.name in held:
        held.pop(RECORDS.name, None)

    def read() -> Registry:
        formats = kept_formats(lake)
        if SCHEMAS.name not in held:
            return registry_of_lake(held[RECORDS.name], [Registry(formats=formats)])
        rows = read_declared(held[SCHEMAS.name], SCHEMAS.arrow_schema()).to_pylist()
        return Registry([_schema(row) for row in rows], formats=formats).in_order()

    return read


def _schema(row: dict[str, Any]) -> Schema:
    references = json.loads(row["references"] or "[]")
    return Schema(
        **{name: row[name] for name in ("subject", "version", "id", "guid", "type", "last_offset")},
        text=row["schema"],
        references=tuple(Reference(**reference) for reference in references),
        metadata=json.loads(row["metadata"] or "null"),
        rule_set=json.loads(row["rule_set"] or "null"),
        deleted=row["deleted"] or "",
        first_offset=-1 if row["first_offset"] is None else row["first_offset"],
    )


def keep_schemas(lake: str, registry: Registry) -> None:
    """Writes the table ``schemas``, unless it has these rows."""
    rows = pa.Table.from_pylist(list(_rows(registry)), SCHEMAS.arrow_schema())
    path = table_path(lake, SCHEMAS.name)
    table = open_if_there(path)
    if table is not None:
        known = read_declared(table, SCHEMAS.arrow_schema())
        order = [(name, "ascending") for name in ("subject", "version", "id", "first_offset")]
        if known.sort_by(order).equals(rows.sort_by(order)):
            return
    if rows.num_rows:
        write_deltalake(
            path,
            rows,
            mode="overwrite",
            schema_mode="overwrite",
            storage_options=deltalake_options(path),
            description=SCHEMAS.comment,
        )


def keep_formats(lake: str, formats: TopicFormats) -> bool:
    """Writes the formats that a person gives for topics. Returns whether they replace other ones."""
    before = kept_formats(lake)
    if before == formats:
        return False
    system, folder = open_store(table_path(lake, SCHEMAS.name))
    system.create_dir(folder, recursive=True)
    write_whole(lake, system, f"{folder}/{_FORMATS}", json.dumps(formats.as_mapping(), indent=1).encode())
    return bool(before.declared)


def kept_formats(lake: str) -> TopicFormats:
    """Returns the formats that ``keep_formats`` wrote; none without a file, or with one that is damaged."""
    system, folder = open_store(table_path(lake, SCHEMAS.name))
    try:
        with system.open_input_stream(f"{folder}/{_FORMATS}") as file:
            return TopicFormats.parsed(json.loads(file.read()))
    except FileNotFoundError:
        pass
    except (ValueError, RecursionError) as error:
        log.warning("%s/%s cannot be read; give --formats again: %s", folder, _FORMATS, error)
    return TopicFormats()


def _encrypted(registry: Registry, schema: Schema) -> str | None:
    """Returns the rules of a schema that encrypt, as JSON; None without any."""
    if not schema.encrypting_rules:
        return None
    references: list[tuple[str, str]] = []
    with suppress(PayloadError):  # one is missing: its fields are not known
        references = PayloadReader(registry).references(schema)
    return json.dumps([described(schema, rule, references) for rule in schema.encrypting_rules])


def _rows(registry: Registry) -> Iterable[dict[str, Any]]:
    for schema in registry.schemas:
        yield {
            "subject": schema.subject,
            "version": schema.version,
            "id": schema.id,
            "guid": schema.guid,
            "type": schema.type,
            "deleted": schema.deleted or None,
            "references": json.dumps([vars(reference) for reference in schema.references])
            if schema.references
            else None,
            "metadata": json.dumps(schema.metadata) if schema.metadata is not None else None,
            "rule_set": json.dumps(schema.rule_set) if schema.rule_set is not None else None,
            "encrypted": _encrypted(registry, schema),
            "schema": schema.text,
            "first_offset": schema.first_offset if schema.first_offset >= 0 else None,
            "last_offset": schema.last_offset,
        }
