"""Bytes in, Arrow columns out: what runs on executors and in worker processes. ``spark/`` alone knows Spark.

The way of a byte, one module a station::

    storage.byte_source        a file, an object or landed chunks, read in windows
    kernels.framing            window -> batches, each with its checksum verdict
    decoder.resync             after damage: where the log continues
    kernels.fast_payloads      compressed payloads as nearly all are, many a call -> their bytes
    kernels.codecs             any compressed payload -> its bytes, bounded while expanding
    kernels.record_batches     payloads -> columns, in one pass
    kernels.record_builder     gives them memory, makes Arrow record batches of it
    decoder.segment_decoder    the loop over a segment that ties these together
    format.explain             what a kernel found wrong -> what was expected, what was found
    arrow.parquet_sink         columns -> the data files of the tables
    spark.tasks                the adapter to Spark: rows of slices in, reports or records out
    worker                     a process that runs these tasks where no Spark does

``batches`` has Kafka's rules over a log's batches, ``values`` what keys and values hold, ``functions`` the
functions for SQL, ``indexes`` the files that a broker keeps next to its segments. ``files`` decodes one file.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kafka_log_lake.udfs.files import decode_segment

__all__ = ["decode_segment"]


def __getattr__(name: str) -> Any:
    """Loads the decoder on first use, so that importing the package compiles nothing."""
    if name in __all__:
        from kafka_log_lake.udfs import files

        return getattr(files, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
