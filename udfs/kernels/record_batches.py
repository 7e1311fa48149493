"""Payloads -> columns: the records of batches, in one pass.

A batch is taken whole or not at all: a fault rolls back what was filled of it. Every bound is checked against
what is really there, so no count and no length of a hostile batch reads or allocates past it. What one record
or message is made of: ``default_record``, ``legacy_record``.
"""

from __future__ import annotations

from typing import Any

from udfs.format import layout as f
from udfs.kernels import arena as a
from udfs.kernels.arena import part_of, set_bits, text_columns
from udfs.kernels.default_record import decode_records
from udfs.kernels.framing import set_fault
from udfs.kernels.jit import inlined, int64, kernel
from udfs.kernels.legacy_record import decode_message, decode_wrapper
from udfs.kernels.number_columns import fill_numbers
from udfs.kernels.record_cursor import DATA_BYTES, FILLED, start_cursor

_VALID = (a.KEY_VALID, a.VALUE_VALID, a.HEADER_VALID, a.HEADER_VALUE_VALID)
_FEW, _FEW_BYTES = 1 << 10, 1 << 14  # rows and headers, bytes: room for what is not like the last


@inlined
def _decode(
    buf: Any, e: Any, arena: Any, columns: Any, lines: Any, cursor: Any, filled: Any, room: Any
) -> None:
    if e["magic"] == f.MAGIC_V2:
        decode_records(buf, e, arena, columns, lines, cursor, filled, room)
    elif e["codec"] != f.CODEC_NONE:
        decode_wrapper(buf, e, arena, columns, lines, cursor, filled, room)
    else:
        decode_message(buf, e, arena, columns, lines, cursor, filled, room)


@inlined
def _is_whole(e: Any, cursor: Any) -> bool:
    return not cursor["fault"] and cursor["at"] == e["data_at"] + e["data_size"]


@inlined
def _begin(arena: Any, at: Any) -> None:
    """All texts are taken for valid until a null comes."""
    for part in _VALID:
        part_of(arena, at, part)[:] = 255


@inlined
def _end(arena: Any, columns: Any, filled: Any) -> None:
    """Where the last text ends."""
    rows, headers = filled[a.ROWS], filled[a.HEADERS]
    a.end_texts(arena, columns.keys, rows, filled[a.KEY_BYTES])
    a.end_texts(arena, columns.values, rows, filled[a.VALUE_BYTES])
    a.end_texts(arena, columns.lists, rows, headers)
    a.end_texts(arena, columns.header_keys, headers, filled[a.HEADER_KEY_BYTES])
    a.end_texts(arena, columns.header_values, headers, filled[a.HEADER_VALUE_BYTES])


@inlined
def _copy(to: Any, of: Any) -> None:
    for i in range(FILLED):
        to[i] = of[i]


@kernel
def _roll_back(e: Any, arena: Any, at: Any, filled: Any, before: Any) -> None:
    """Take back what was filled of a batch: so many rows and headers as its bytes allow, at most."""
    for part in _VALID:
        valid = part_of(arena, at, part)
        counted, least = a.ROWS, f.MIN_RECORD_SIZE
        if part == a.HEADER_VALUE_VALID:
            counted, least = a.HEADERS, f.MIN_HEADER_SIZE
        end = before[counted] + e["data_size"] // least + 1
        set_bits(valid, before[counted], min(end, 8 * len(valid)))
    _copy(filled, before)


@inlined
def _note_sums(e: Any, filled: Any, before: Any) -> None:
    """Note in the batch what its records came to."""
    e["record_count"] = filled[a.ROWS] - before[a.ROWS]
    e["key_bytes"] = filled[a.KEY_BYTES] - before[a.KEY_BYTES]
    e["value_bytes"] = filled[a.VALUE_BYTES] - before[a.VALUE_BYTES]
    header_bytes = filled[a.HEADER_KEY_BYTES] - before[a.HEADER_KEY_BYTES]
    e["header_bytes"] = header_bytes + filled[a.HEADER_VALUE_BYTES] - before[a.HEADER_VALUE_BYTES]


@kernel
def decode_batches(
    window: Any,
    scratch: Any,
    batches: Any,
    arena: Any,
    at: Any,
    lines: Any,
    cursor: Any,
    both: Any,
    room: Any,
) -> int:
    """Fill the columns with the records of ``batches`` (BATCH[n]); how many batches there was room for.

    ``window``, ``scratch``: uint8, where the data of plain and of expanded batches lie; ``arena``: uint8,
    laid out by ``at`` for ``room``; ``lines``: of ``new_lines``, for as many rows or none; ``cursor``:
    CURSOR[1] to work in; ``both``: int64[2, FILLED] of zeros: what is filled, written, and a line to work in.
    A batch that has a fault already is passed over.
    """
    columns = text_columns(at)
    _begin(arena, at)
    place, filled, before = cursor[0], both[0], both[1]
    k = 0
    while k < len(batches):
        e = batches[k]
        if not e["fault"]:
            _copy(before, filled)
            start_cursor(e, place)
            _decode(scratch if e["expanded"] else window, e, arena, columns, lines, place, filled, room)
            if _is_whole(e, place):
                _note_sums(e, filled, before)
            else:
                _roll_back(e, arena, at, filled, before)
                if not place["fault"]:
                    break
                set_fault(e, place["fault"], place["stopped_at"], place["at"])
                e["stopped_after"] = place["record"]
        filled[DATA_BYTES] += e["data_size"]
        k += 1
    _end(arena, columns, filled)
    fill_numbers(batches[:k], lines, arena, at, filled)
    return k


@kernel
def decode_chunk(
    window: Any,
    scratch: Any,
    batch: Any,
    arena: Any,
    at: Any,
    lines: Any,
    cursor: Any,
    both: Any,
    room: Any,
) -> int:
    """Fill the columns with records of one sound batch (BATCH[1]); how many there was room for.

    As ``decode_batches``, but from the cursor on, which is moved on.
    """
    columns = text_columns(at)
    _begin(arena, at)
    e, filled = batch[0], both[0]
    _decode(scratch if e["expanded"] else window, e, arena, columns, lines, cursor[0], filled, room)
    _end(arena, columns, filled)
    fill_numbers(batch, lines, arena, at, filled)
    return filled[a.ROWS]


@kernel
def make_room(size: int, last: Any, room: Any) -> None:
    """What columns need room for (``room``: int64[ROOMS], written) by what the last were filled with.

    ``size``: bytes of data, expanded; ``last``: int64[FILLED]. An eighth more, and a little, but no more than
    these bytes can make.
    """
    for i in range(a.ROOMS):
        least = f.MIN_RECORD_SIZE if i == a.ROWS else (f.MIN_HEADER_SIZE if i == a.HEADERS else 1)
        rate = last[i] / max(1, last[DATA_BYTES])
        more = _FEW if least > 1 else _FEW_BYTES
        room[i] = min(int64(rate * size * 1.125) + more, size // least)


@kernel
def most_records(e: Any) -> int:
    """How many records the batch can have at most, by the bytes that are there."""
    if e["magic"] == f.MAGIC_V2:
        return max(0, min(int64(e["count"]), e["data_size"] // f.MIN_RECORD_SIZE))
    if e["codec"] != f.CODEC_NONE:
        return int64(e["data_size"] // f.V0_MIN_SIZE)
    return 1


@kernel
def group_end(batches: Any, begin: int, most_rows: int) -> int:
    """End of a group of batches from ``begin`` on that needs no expanding and has ``most_rows`` at most.

    One batch is a group, whatever it has.
    """
    rows = 0
    for k in range(begin, len(batches)):
        if batches[k]["codec"] != f.CODEC_NONE and not batches[k]["fault"]:
            return k
        rows += most_records(batches[k])
        if rows > most_rows and k > begin:
            return k
    return len(batches)
