"""Finds the transactions of logs, from a lake's tables: ``udfs.batches.transactions`` over Arrow."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_log_lake.pipelines.rules.files import LOG, Files
from kafka_log_lake.udfs.batches.offset_findings import places_before
from kafka_log_lake.udfs.batches.transactions import EVENT, OUTCOMES, transactions
from kafka_log_lake.udfs.format import layout as f

# Columns of the sound transactional batches, and of quarantine, that decide
BATCH_COLUMNS = (
    *("segment", "position", "base_offset", "last_offset", "record_count", "producer_id", "producer_epoch"),
    *("is_control", "control_type", "coordinator_epoch"),
)
_MARKERS = {"ABORT": f.CONTROL_ABORT, "COMMIT": f.CONTROL_COMMIT}


def transactions_of(files: Files, batches: pa.Table, quarantine: pa.Table) -> pa.Table:
    """Returns rows of the table ``transactions``.

    batches: BATCH_COLUMNS of all sound transactional batches of the files. quarantine: PLACE_COLUMNS of all
    damaged ranges of the files.
    """
    is_data = pc.invert(batches.column("is_control"))
    is_marker = pc.is_in(batches.column("control_type"), pa.array(list(_MARKERS)))
    batches = batches.filter(pc.or_(is_data, is_marker))
    file, position = files.numbers(batches.column("segment")), batches.column("position").to_numpy()
    damaged_file = files.numbers(quarantine.column("segment"))
    damaged = np.stack([damaged_file, quarantine.column("position").to_numpy()], axis=1)
    order = np.lexsort((position, file))
    events = _events(files, batches, file)[order]
    damages = np.bincount(files.log[damaged_file], minlength=len(files.logs))
    before = np.concatenate([[0], np.cumsum(damages)])  # damaged ranges of the logs before a log
    events["damages"] = places_before(np.stack([file, position], axis=1)[order], damaged)
    events["damages"] -= before[events["log"]]
    last = np.append(np.flatnonzero(np.diff(files.log)), len(files.log) - 1)
    rows = transactions(events, damages, files.stretch[last])
    return _rows(files, rows)


def _events(files: Files, batches: pa.Table, file: np.ndarray) -> np.ndarray:
    events = np.zeros(len(batches), dtype=EVENT)
    for name, of_file in (("log", files.log), ("stretch", files.stretch)):
        events[name] = of_file[file]
    events["file_base"], events["file_limit"] = files.base[file], files.limit[file]
    for name, column in (
        *(("first_offset", "base_offset"), ("last_offset", "last_offset"), ("records", "record_count")),
        *(("producer_id", "producer_id"), ("producer_epoch", "producer_epoch")),
        ("coordinator_epoch", "coordinator_epoch"),
    ):
        events[name] = pc.fill_null(batches.column(column), -1).to_numpy()
    control = batches.column("control_type")
    kinds = pc.index_in(control, value_set=pa.array(list(_MARKERS)))
    codes = np.array([*_MARKERS.values(), f.NO_CONTROL], dtype=np.int16)
    events["control_type"] = codes[pc.fill_null(kinds, len(_MARKERS)).to_numpy()]
    events["batches"], events["last_base"] = 1, events["first_offset"]
    return events


def _rows(files: Files, transactions: np.ndarray) -> pa.Table:
    logs = files.logs.take(pa.array(transactions["log"]))
    codes = np.array(sorted(OUTCOMES), dtype=np.int16)
    outcomes = pa.array([OUTCOMES[code] for code in codes.tolist()])
    outcome = outcomes.take(pa.array(np.searchsorted(codes, transactions["control_type"])))
    no_data, is_open = ~transactions["has_data"], transactions["control_type"] == f.NO_CONTROL
    return pa.table(
        {
            **{name: logs.column(name) for name in LOG},
            "producer_id": transactions["producer_id"],
            "producer_epoch": transactions["producer_epoch"],
            "first_offset": pa.array(transactions["first_offset"], mask=no_data),
            "last_offset": pa.array(transactions["last_offset"], mask=no_data),
            "records": transactions["records"],
            "marker_offset": pa.array(transactions["marker_offset"], mask=is_open),
            "coordinator_epoch": pa.array(transactions["coordinator_epoch"], mask=is_open),
            "outcome": outcome,
            "outcome_uncertain": transactions["is_uncertain"],
            "holds_last_stable_offset": ~transactions["is_over"],
        }
    )
