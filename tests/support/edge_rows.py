"""A lake whose rows hold the values at which SQL engines differ: nulls, extremes, bytes that are no UTF-8."""

from __future__ import annotations

import itertools
import math
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from kafka_log_lake.pipelines.lake.address import table_path
from kafka_log_lake.pipelines.lake.create import create_table
from kafka_log_lake.udfs.format.report_tables import QUALITY_METRICS
from tests.support.lake_rows import insert

_BIGINTS = (None, 0, 1, -1, 7, -7, 1000, -1001, 2**31, 2**53 + 1, 2**62, -(2**62))
_INTS = (None, 0, 1, -1, 3, -3, 2**30, -(2**30), 17, -17)
_KEYS = (
    None,
    b"",
    b"a",
    b"A",
    b"\xff\xfe",
    b"a\xc3",
    b"\x00",
    "é€😀".encode(),
    b"\xed\xa0\x80",
    b"\xf0\x9f\x98a",
    b"ab\n",
)
_TEXTS = (
    None,
    "",
    "a",
    "A",
    "é€😀",
    "a%b_c\\d",
    "it's",
    "line\nbreak\ttab",
    'a,b"c',
    " x ",
    "\x7f\u2028",
    "10",
    "B",
)
_TIMES = (
    None,
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999_500, tzinfo=UTC),
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(2024, 2, 29, 12, 30, 45, 120_000, tzinfo=UTC),
    datetime(2024, 2, 29, 12, 30, 45, 1, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
)
_HEADERS: tuple[list[dict[str, Any]] | None, ...] = (
    None,
    [],
    [{"key": "k", "value": b"v"}],
    [{"key": "k", "value": None}, {"key": "k", "value": b"\xff"}, {"key": "l", "value": b""}],
)
_DOUBLES = (
    *(
        None,
        0.0,
        -0.0,
        0.5,
        1.5,
        2.5,
        -0.5,
        -1.5,
        2.675,
        1.005,
        0.125,
        1e-3,
        9.99e-4,
        1e7,
        9_999_999.5,
        1e16,
        1.0e23,
    ),
    *(1 / 3, -1234.5678, 1e300, 5e-324, math.inf, -math.inf, math.nan, 123_456_789.125, 0.1 + 0.2),
)


def make_edge_rows(lake: str) -> None:
    """Fills ``records`` and ``quality_metrics`` of an empty lake."""
    rows: list[dict[str, Any]] = []
    columns = {
        "key": _KEYS,
        "value": _KEYS[::-1],
        "offset": _BIGINTS,
        "timestamp_ms": _BIGINTS[::-1],
        "sequence": _INTS,
        "leader_epoch": _INTS[::-1],
        "control_type": _TEXTS,
        "segment": _TEXTS[::-1],
        "timestamp": _TIMES,
        "is_control": (None, True, False),
        "is_transactional": (True, None, False, False),
        "headers": _HEADERS,
        "producer_epoch": (None, 0, 1, -1, 32767),
        "timestampType": (0, 1, None),
        "batch_position": (0, 5, 9),
    }
    cycles = {name: itertools.cycle(values) for name, values in columns.items()}
    for i in range(156):
        row = {name: next(values) for name, values in cycles.items()}
        rows.append({**row, "topic": f"t{i % 5}", "partition": i % 3, "magic": i % 3 if i % 7 else None})
    insert(lake, "records", rows)
    create_table(lake, QUALITY_METRICS)
    metrics = [{"value": value, "check": f"c{i % 3}", "topic": "t"} for i, value in enumerate(_DOUBLES)]
    table = pa.Table.from_pylist(metrics, schema=QUALITY_METRICS.arrow_schema())
    write_deltalake(table_path(lake, QUALITY_METRICS.name), table, mode="append")
