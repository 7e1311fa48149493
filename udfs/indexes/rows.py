"""Builds Arrow record batches from the rows of the broker's files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

ERROR = pa.field("error", pa.string())


def row_schema(**columns: pa.DataType) -> pa.Schema:
    """Returns a schema of these columns, and ``error`` after them."""
    return pa.schema([*(pa.field(name, kind) for name, kind in columns.items()), ERROR])


def rows_of(
    schema: pa.Schema,
    columns: Mapping[str, Sequence[object]],
    problem: str | None = None,
    errors: Mapping[int, str] | None = None,
) -> pa.RecordBatch:
    """Builds a record batch from columns of n values each.

    errors: by row, what is wrong with it. problem: why reading ended; it becomes a row more, null but for
    ``error``.
    """
    n = len(next(iter(columns.values())))
    errors_by_row = dict(errors or {})
    if problem is not None:
        errors_by_row[n] = problem
    more = [None] * (problem is not None)
    arrays = [pa.array([*columns[each.name], *more], each.type) for each in schema if each.name != ERROR.name]
    arrays.append(pa.array([errors_by_row.get(i) for i in range(n + len(more))], pa.string()))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
