"""Payload -> the positions of each record's parts (rows): the first of the two passes over records.

A batch is taken whole or not at all: a fault rolls its rows back. Every bound is checked against what is
really there, so no count and no length of a hostile batch reads or allocates past it. What one record or
message is made of: ``default_record``, ``legacy_record``.
"""

from __future__ import annotations

from typing import Any

from udfs.format import layout as f
from udfs.kernels.default_record import index_records
from udfs.kernels.framing import set_fault
from udfs.kernels.jit import borrowed, int64, kernel
from udfs.kernels.legacy_record import index_message, index_wrapper
from udfs.kernels.record_rows import add_totals, clear_totals, start_cursor


@kernel
def index_batch(buf: Any, e: Any, rows: Any, cursor: Any, totals: Any) -> int:
    """Rows of one batch's records, from the cursor on, as many as it allows.

    ``buf``: uint8[n], the batch's data buffer; ``rows``: of ``new_rows``; ``cursor``: a row of CURSOR, moved
    on; ``totals``: a row of TOTALS, added to. Returns the rows made; -1 with the fault noted in ``e``.
    """
    if e["magic"] == f.MAGIC_V2:
        made = index_records(buf, e, rows, cursor, totals)
    elif e["codec"] != f.CODEC_NONE:
        made = index_wrapper(buf, e, rows, cursor, totals)
    else:
        made = index_message(buf, e, rows, cursor, totals)
    if made < 0:
        set_fault(e, cursor["fault"], cursor["stopped_at"], cursor["at"])
        e["stopped_after"] = cursor["record"]
    return made


@kernel
def index_batches(
    window: Any, scratch: Any, batches: Any, rows: Any, cursor: Any, totals: Any, sums: Any
) -> int:
    """Rows of the records of ``batches`` (BATCH[n]), each batch whole or not at all; rows made.

    ``window``, ``scratch``: uint8, where the data of plain and of expanded batches lie. ``rows`` must hold
    what the batches can have (``most_records``). ``cursor``: CURSOR[1] to work in; ``totals``: TOTALS[1],
    added to; ``sums``: TOTALS[1] to work in. A batch that has a fault already is passed over.
    """
    window, scratch = borrowed(window), borrowed(scratch)
    batches, rows = borrowed(batches), borrowed(rows)
    place, total, own = cursor[0], totals[0], sums[0]
    made = 0
    place["step"] = 1
    place["room"] = 0
    for k in range(len(batches)):
        e = batches[k]
        if e["fault"]:
            continue
        clear_totals(own)
        start_cursor(e, place)
        place["row"] = made
        place["capacity"] = rows.shape[1] - made
        count = index_batch(scratch if e["expanded"] else window, e, rows, place, own)
        if count < 0:
            continue
        set_sums(e, count, own)
        add_totals(total, own)
        made += count
    return made


@kernel
def set_sums(e: Any, count: int, sums: Any) -> None:
    """Note in the batch what its records came to. ``sums``: a row of TOTALS."""
    e["record_count"] = count
    e["key_bytes"] = sums["key_bytes"]
    e["value_bytes"] = sums["value_bytes"]
    e["header_bytes"] = sums["header_key_bytes"] + sums["header_value_bytes"]


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
