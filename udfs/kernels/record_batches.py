"""Decodes payloads to columns: the records of batches, in one pass.

A batch is taken whole or not at all: a fault rolls back what was filled of it. Every bound is checked against
the bytes that are there, so no count and no length of a hostile batch reads or allocates past it. The fields
of one record or message: see ``default_record``, ``legacy_record``.
"""

from __future__ import annotations

import numpy as np

from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.kernels import arena as a
from kafka_log_lake.udfs.kernels.arena import part_of, set_bits, text_columns
from kafka_log_lake.udfs.kernels.default_record import decode_records
from kafka_log_lake.udfs.kernels.framing import set_fault
from kafka_log_lake.udfs.kernels.jit import inlined, int64, kernel
from kafka_log_lake.udfs.kernels.legacy_record import decode_message, decode_wrapper
from kafka_log_lake.udfs.kernels.number_columns import fill_numbers
from kafka_log_lake.udfs.kernels.record_cursor import start_cursor

_VALID = (a.KEY_VALID, a.VALUE_VALID, a.HEADER_VALID, a.HEADER_VALUE_VALID)
_SMALLEST = (f.MIN_RECORD_SIZE, f.MIN_HEADER_SIZE, 1, 1, 1, 1)  # bytes that one of each of COUNTED takes
_FEW, _FEW_BYTES = 1 << 10, 1 << 14  # rows and headers, bytes: spare room if batches differ from the last


@inlined
def _decode(
    buf: np.ndarray,
    e: np.void,
    arena: np.ndarray,
    columns: a.TextColumns,
    lines: np.ndarray,
    cursor: np.ndarray,
    filled: np.ndarray,
    room: np.ndarray,
) -> None:
    if e["magic"] == f.MAGIC_V2:
        decode_records(buf, e, arena, columns, lines, cursor, filled, room)
    elif e["codec"] != f.CODEC_NONE:
        decode_wrapper(buf, e, arena, columns, lines, cursor, filled, room)
    else:
        decode_message(buf, e, arena, columns, lines, cursor, filled, room)


@inlined
def _is_whole(e: np.void, cursor: np.ndarray) -> bool:
    return not cursor["fault"] and cursor["at"] == e["data_at"] + e["data_size"]


@inlined
def _begin(arena: np.ndarray, at: np.ndarray) -> None:
    """Marks all texts as valid: each null unsets its bit later."""
    for part in _VALID:
        part_of(arena, at, part)[:] = 255


@inlined
def _end(arena: np.ndarray, columns: a.TextColumns, filled: np.ndarray) -> None:
    """Writes the offset where the last text of each column ends."""
    rows, headers = filled["rows"], filled["headers"]
    a.end_texts(arena, columns.keys, rows, filled["key_bytes"])
    a.end_texts(arena, columns.values, rows, filled["value_bytes"])
    a.end_texts(arena, columns.lists, rows, headers)
    a.end_texts(arena, columns.header_keys, headers, filled["header_key_bytes"])
    a.end_texts(arena, columns.header_values, headers, filled["header_value_bytes"])


@kernel
def _roll_back(e: np.void, arena: np.ndarray, at: np.ndarray, both: np.ndarray) -> None:
    """Removes the rows of a batch from what is filled: as many as its bytes allow, at most."""
    for part in _VALID:
        valid = part_of(arena, at, part)
        begin, least = both[1]["rows"], f.MIN_RECORD_SIZE
        if part == a.HEADER_VALUE_VALID:
            begin, least = both[1]["headers"], f.MIN_HEADER_SIZE
        end = begin + e["data_size"] // least + 1
        set_bits(valid, begin, min(end, 8 * len(valid)))
    both[0] = both[1]


@inlined
def _note_sums(e: np.void, filled: np.ndarray, before: np.ndarray) -> None:
    """Notes in the batch how many records it has, and the bytes of their keys, values and headers."""
    e["record_count"] = filled["rows"] - before["rows"]
    e["key_bytes"] = filled["key_bytes"] - before["key_bytes"]
    e["value_bytes"] = filled["value_bytes"] - before["value_bytes"]
    header_bytes = filled["header_key_bytes"] - before["header_key_bytes"]
    e["header_bytes"] = header_bytes + filled["header_value_bytes"] - before["header_value_bytes"]


@kernel
def decode_batches(
    window: np.ndarray,
    scratch: np.ndarray,
    batches: np.ndarray,
    arena: np.ndarray,
    at: np.ndarray,
    lines: np.ndarray,
    cursor: np.ndarray,
    both: np.ndarray,
    room: np.ndarray,
) -> int:
    """Fills the columns with the records of ``batches`` (BATCH[n]); returns how many batches fitted.

    ``window``, ``scratch``: uint8, where the data of plain and of expanded batches lie; ``arena``: uint8,
    laid out by ``at`` for ``room`` (ROOM[1]); ``lines``: from ``new_lines``, for as many rows or none;
    ``cursor``: CURSOR[1], temporary; ``both``: FILLED[2] of zeros: what is filled, written, and a temporary
    row. A batch that has a fault already is passed over.
    """
    columns = text_columns(at)
    _begin(arena, at)
    place, filled, before = cursor[0], both[0], both[1]
    k = 0
    while k < len(batches):
        e = batches[k]
        if not e["fault"]:
            both[1] = both[0]
            start_cursor(e, place)
            _decode(scratch if e["expanded"] else window, e, arena, columns, lines, place, filled, room[0])
            if _is_whole(e, place):
                _note_sums(e, filled, before)
            else:
                _roll_back(e, arena, at, both)
                if not place["fault"]:
                    break
                set_fault(e, place["fault"], place["stopped_at"], place["at"])
                e["stopped_after"] = place["record"]
        filled["data_bytes"] += e["data_size"]
        k += 1
    _end(arena, columns, filled)
    fill_numbers(batches[:k], lines, arena, at, filled)
    return k


@kernel
def decode_chunk(
    window: np.ndarray,
    scratch: np.ndarray,
    batch: np.ndarray,
    arena: np.ndarray,
    at: np.ndarray,
    lines: np.ndarray,
    cursor: np.ndarray,
    both: np.ndarray,
    room: np.ndarray,
) -> int:
    """Fills the columns with records of one sound batch (BATCH[1]); returns how many records fitted.

    As ``decode_batches``, but from the cursor on, which is moved on.
    """
    columns = text_columns(at)
    _begin(arena, at)
    e, filled = batch[0], both[0]
    _decode(scratch if e["expanded"] else window, e, arena, columns, lines, cursor[0], filled, room[0])
    _end(arena, columns, filled)
    fill_numbers(batch, lines, arena, at, filled)
    return filled["rows"]


@inlined
def _room(size: int, filled: int, data_bytes: int, least: int) -> int:
    """Returns the room for what ``size`` bytes may hold of a kind whose smallest has ``least`` bytes."""
    more = _FEW if least > 1 else _FEW_BYTES
    return min(int64(filled / max(1, data_bytes) * size * 1.125) + more, size // least)


@kernel
def make_room(size: int, last: np.ndarray, room: np.ndarray) -> None:
    """Estimates the room that columns need (``room``: ROOM[1], written) from what the last were filled with.

    ``size``: bytes of data, expanded; ``last``: FILLED[1]. The room is an eighth more, and a little, but no
    more than these bytes can hold.
    """
    filled, most = last.view(np.int64), room.view(np.int64)
    for i in range(len(_SMALLEST)):
        most[i] = _room(size, filled[i], last[0]["data_bytes"], _SMALLEST[i])


@kernel
def most_records(e: np.void) -> int:
    """Returns how many records the batch can have at most, by the bytes that are there."""
    if e["magic"] == f.MAGIC_V2:
        return max(0, min(int64(e["count"]), e["data_size"] // f.MIN_RECORD_SIZE))
    if e["codec"] != f.CODEC_NONE:
        return int64(e["data_size"] // f.V0_MIN_SIZE)
    return 1


@kernel
def group_end(batches: np.ndarray, begin: int, most_rows: int) -> int:
    """Returns the end of a group of uncompressed batches from ``begin`` on, of ``most_rows`` at most.

    A group has one batch at least, whatever its rows, unless that is compressed.
    """
    rows = 0
    for k in range(begin, len(batches)):
        if batches[k]["codec"] != f.CODEC_NONE and not batches[k]["fault"]:
            return k
        rows += most_records(batches[k])
        if rows > most_rows and k > begin:
            return k
    return len(batches)
