"""Writes the Parquet files of typed tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

# Rows or bytes of a row group; a batch may exceed them
_GROUP_ROWS, _GROUP_BYTES = 131_072, 64 << 20
_DICTIONARY_BYTES = 64 << 10  # of a dictionary; with more bytes a row group has the values themselves


def in_memory(schema: pa.Schema) -> pa.Schema:
    """Returns a data file's schema as it is read and written in memory: ``segment`` as a dictionary."""
    field = pa.field("segment", pa.dictionary(pa.int32(), pa.string()))
    return schema.set(schema.get_field_index("segment"), field)


class TypedWriter:
    """Writes rows of a typed table into a Parquet file, in row groups.

    Whole numbers and times are written as differences. Texts begin with a dictionary, which a row group gives
    up where it has many of them; they have no statistics, as few readers skip by those and all wait for them.
    """

    def __init__(self, out: object, schema: pa.Schema) -> None:
        """Opens the Parquet file.

        schema: ``typed_schema``.
        """
        written = in_memory(schema)
        leaves = [leaf for field in written for leaf in _leaves(field.name, field.type)]
        named = Counter(path for path, _ in leaves)  # JSON has names with dots: a.b, and b in a
        leaves = [leaf for leaf in leaves if named[leaf[0]] == 1]
        texts = [path for path, type_ in leaves if _is_text(type_)]
        self._writer = pq.ParquetWriter(
            out,
            written,
            store_schema=False,  # readers get texts
            compression="zstd",
            compression_level=1,
            use_dictionary=texts,
            dictionary_pagesize_limit=_DICTIONARY_BYTES,
            write_statistics=[path for path, _ in leaves if path not in texts],
            column_encoding={path: "DELTA_BINARY_PACKED" for path, type_ in leaves if _is_whole(type_)},
        )
        self._held: list[pa.Table] = []

    def add(self, rows: pa.Table) -> None:
        """Adds rows (schema: ``in_memory``), and writes a row group once there are enough."""
        self._held.append(rows)
        if (
            sum(map(len, self._held)) >= _GROUP_ROWS
            or sum(table.nbytes for table in self._held) >= _GROUP_BYTES
        ):
            self._write()

    def _write(self) -> None:
        if self._held:
            self._writer.write_table(pa.concat_tables(self._held))
        self._held = []

    def close(self) -> None:
        self._write()
        self._writer.close()


def _leaves(path: str, type_: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    """Yields (path, type) of the Parquet columns of a column."""
    if pa.types.is_struct(type_):
        parts = [(field.name, field.type) for field in type_]
    elif pa.types.is_map(type_):
        parts = [("key_value.key", type_.key_type), ("key_value.value", type_.item_type)]
    elif pa.types.is_list(type_):
        parts = [("list.element", type_.value_type)]
    else:
        yield path, type_
        return
    for name, part in parts:
        yield from _leaves(f"{path}.{name}", part)


def _is_text(type_: pa.DataType) -> bool:
    return type_ in (pa.string(), pa.binary()) or pa.types.is_dictionary(type_)


def _is_whole(type_: pa.DataType) -> bool:
    return pa.types.is_integer(type_) or pa.types.is_temporal(type_)
