"""Writes rows to a workbook of Excel, row by row: each is on the disk before the next one is read."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.generated import without_controls
from kafka_log_lake.pipelines.sql.json_rows import encoded

if TYPE_CHECKING:
    from xlsxwriter.worksheet import Worksheet

# Of a sheet, by Excel's specifications and limits; a cell's in UTF-16 code units
ROWS, COLUMNS, CELL = 1_048_576, 16_384, 32_767
_EXACT = 10**15  # a number of more digits would be another one in Excel


class CellsCut:
    """Counts the cells that were cut, because Excel holds no longer ones."""

    count = 0


def write_xlsx(file: BinaryIO, schema: pa.Schema, batches: Iterable[pa.RecordBatch], cut: CellsCut) -> int:
    """Writes a sheet ``records``: a row of names, and a row each. Returns the number of rows.

    Texts are written as texts, so that none is a formula; times are texts in ISO 8601, and so are numbers of
    more than 15 digits, which Excel would change. Raises a UserError for more than a sheet holds.
    """
    import xlsxwriter  # of an extra

    if len(schema) > COLUMNS:
        raise UserError(f"{len(schema):,} columns, and a sheet of Excel has {COLUMNS:,}: --format parquet")
    # It keeps the rows in a file, and removes that when it is closed
    with xlsxwriter.Workbook(file, {"constant_memory": True}) as book:
        sheet = book.add_worksheet("records")
        sheet.freeze_panes(1, 0)
        for at, name in enumerate(schema.names):
            sheet.write_string(0, at, _fitting(without_controls(name), cut))
        count = 0
        for count, row in enumerate(_rows(batches), 1):
            if count >= ROWS:
                raise UserError(
                    f"more than {ROWS - 1:,} records, and a sheet of Excel has {ROWS:,} rows with that of "
                    "the names: use --format csv, parquet or duckdb"
                )
            for at, value in enumerate(row):
                _write(sheet, count, at, _fitting(value, cut) if isinstance(value, str) else value)
        return count


def _write(sheet: Worksheet, row: int, column: int, value: str | bool | int | float | None) -> None:
    """Writes a cell: a text as text, whatever it looks like; null as no cell."""
    if isinstance(value, str):
        sheet.write_string(row, column, value)
    elif isinstance(value, bool):
        sheet.write_boolean(row, column, value)
    elif value is not None:
        sheet.write_number(row, column, value)


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        yield from zip(*map(_cells, batch.columns), strict=True)


def _cells(column: pa.Array) -> list[object]:
    """Returns the cells of a column: texts, numbers, truth values, None for null."""
    kind = column.type
    if pa.types.is_boolean(kind):
        return column.to_pylist()
    if pa.types.is_integer(kind):
        return _each(column, lambda value: value if abs(value) < _EXACT else str(value))
    if pa.types.is_floating(kind):
        return _each(column, lambda value: value if math.isfinite(value) else str(value))
    if pa.types.is_decimal(kind):
        return _each(
            column, lambda value: float(value) if len(value.as_tuple().digits) < 16 else f"{value:f}"
        )
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _each(column, lambda value: base64.b64encode(value).decode())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _each(column, without_controls)
    return [_text(cell) for cell in encoded(column)]


def _each(column: pa.Array, cell: Callable[[Any], Any]) -> list[object]:
    return [None if value is None else cell(value) for value in column.to_pylist()]


def _text(value: str) -> str | None:
    """Returns the cell for a value's JSON: times without quotes, decimals and nested values as they are."""
    if value == "null":
        return None
    return without_controls(json.loads(value) if value.startswith('"') else value)


def _fitting(text: str, cut: CellsCut) -> str:
    """Returns a text that a cell holds: a longer one is cut, says so at its end, and is counted."""
    if 2 * len(text) <= CELL:
        return text
    content = text.encode("utf-16-le")
    if len(content) <= 2 * CELL:
        return text
    cut.count += 1
    mark = f"... (cut: {len(text):,} characters)"
    return content[: 2 * (CELL - len(mark))].decode("utf-16-le", errors="ignore") + mark
