"""Explains why a batch is refused: has the plain reader read it again, for what was expected and found.

A kernel stops at a fault with a code and a place and nothing more. Errors are rare, kernels are not. What
is read here is the one record or message that it stopped in, so that a hostile batch costs no more than a
sound one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kafka_log_lake.udfs.format import faults
from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.format import plain_reader as plain
from kafka_log_lake.udfs.format.fields import Wrong, integer
from kafka_log_lake.udfs.format.plain_header import wrong_attributes

_OF_CONTROL = (
    *(faults.CONTROL_KEY, faults.CONTROL_VERSION),
    *(faults.CONTROL_VALUE, faults.CONTROL_VALUE_VERSION),
)


def _of_batch(e: np.void, limit: int) -> Wrong | None:
    """Returns a fault of the batch itself, None for one in its data. Its place counts from its begin."""
    code, magic, payload = int(e["fault"]), int(e["magic"]), int(e["payload_at"] - e["at"])
    match code:
        case faults.CRC_MISMATCH:
            return Wrong(code, 0, int(e["crc_computed"]), int(e["crc_stored"]))
        case faults.UNKNOWN_CODEC:
            return wrong_attributes(magic, int(e["codec"]))
        case faults.DECOMPRESSION_FAILED | faults.DECOMPRESSED_TOO_LARGE:
            return Wrong(code, payload, limit)
        case faults.COUNT_NEGATIVE | faults.COUNT_TOO_LARGE:
            return plain.wrong_count(int(e["count"]), int(e["data_size"]))
    return None


def _in_data(e: np.void, data: memoryview) -> Wrong | None:
    """Returns a fault in the data of a batch; its place is one in the data."""
    code, begin, at = int(e["fault"]), int(e["stopped_in"]), int(e["stopped_at"])
    end = int(e["data_at"] + e["data_size"])
    match code:
        case faults.COUNT_TOO_SMALL:
            return Wrong(code, at, int(e["count"]), int(e["stopped_after"]))
        case faults.PAYLOAD_LEFT:
            return Wrong(code, at, int(e["count"]), end - at)
        case faults.WRAPPER_EMPTY:
            return Wrong(code, at, 1)
        case faults.WRAPPER_OFFSET:
            return Wrong(code, at, integer(data, at, 8), int(e["last_offset"]))
    if e["magic"] == f.MAGIC_V2:
        record = plain.read_record(data, begin, end, at)
        return plain.wrong_control(record) if code in _OF_CONTROL else record.wrong
    if not e["expanded"]:
        message = plain.read_message(data, begin, begin + int(e["size"]))
        return plain.wrong_wrapper(message) if e["codec"] != f.CODEC_NONE else message.wrong
    message_end = plain.inner_end(data, begin, end)
    return message_end if isinstance(message_end, Wrong) else plain.read_inner(data, begin, message_end).wrong


def explain(e: Any, data: np.ndarray, limit: int) -> None:
    """Fills in ``fault_at``, ``fault_expected`` and ``fault_found`` of a batch at fault, and names its fault.

    ``e``: its row of BATCH, as kernels left it; ``data``: uint8, the buffer where its data lie; ``limit``:
    bytes that one batch may expand to. ``fault_at`` becomes a position in the segment, or -1 - that in the
    expanded payload. ``fault`` changes where kernels have one code for two fields.
    """
    wrong = _of_batch(e, limit)
    at = int(e["position"])
    if wrong is not None:
        at += wrong.at
    else:
        wrong = _in_data(e, memoryview(data))
        if wrong is None:  # a kernel and the plain reader differ, which tests rule out: its place at least
            wrong = Wrong(int(e["fault"]), int(e["stopped_at"]), 0)
        at += wrong.at - int(e["at"])
        if e["expanded"]:
            at = -1 - (wrong.at - int(e["data_at"]))
    if wrong.fault == faults.WRAPPER_OFFSET:
        at = int(e["position"])
    e["fault"], e["fault_at"] = wrong.fault, at
    e["fault_expected"], e["fault_found"] = wrong.expected, wrong.found
