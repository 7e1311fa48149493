"""The executor side: Kafka segment bytes in, Arrow columns out. It knows no Spark, but for one adapter.

The way of a byte, one module a station::

    byte_source      a file, an object or landed chunks, read in windows
    framing          window -> batches, each with its checksum verdict     (checksums)
    resync           after damage: where the log continues                 (headers, batch_search)
    fast_payloads    compressed payloads as nearly all are, many a call -> their bytes (libraries, native)
    codecs           any compressed payload -> its bytes, bounded while expanding
    record_batches   payloads -> columns, in one pass                      (default_record, legacy_record)
    explain          what a kernel found wrong -> what was expected, what was found
    record_builder   gives them memory, makes Arrow record batches of it    (arena, record_columns)
    segment_decoder  the loop over a segment that ties these together      (decoded)
    log_start        where a log begins for its consumers, by the files of its broker
    committed        which records of a log were committed, known from its batches
    files            one file -> Arrow record batches, without Spark
    parquet_sink     columns -> the data files of the tables
    functions        columns of bytes -> columns of answers, for SQL        (column_functions)
    tasks            the one adapter: rows of slices in, reports or records out  (task_input)
    protocol         what the driver has to know of it: rows, options, names
    worker           a process that runs these tasks where no Spark does

``values`` reads what the records of Kafka's internal topics hold: keys and values -> Arrow columns.
``indexes`` reads the files that a broker keeps next to its segments; ``dump`` prints these and segments as
Kafka's own tool does.
``layout`` names the positions, ``schema`` declares the tables, ``jit`` holds the one decorator.
"""

from __future__ import annotations

from typing import Any

__all__ = ["decode_segment", "read_segment"]


def __getattr__(name: str) -> Any:
    """Load the decoder on first use, so that importing the package compiles nothing."""
    if name in __all__:
        from udfs import files

        return getattr(files, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
