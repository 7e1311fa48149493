"""Sends OpenLineage events of a run for ``--lineage``: its sources, and the tables it wrote.

A run that has something to do sends START once it knows its segments, then COMPLETE or FAIL. The events go to
a server, or to a file with an event a line. A run does not fail where they can't be sent: a warning says so.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from kafka_log_lake.pipelines.cli.errors import UserError, needs_extra, one_line
from kafka_log_lake.pipelines.decode.summary import Summary
from kafka_log_lake.pipelines.listing.uris import local_path
from kafka_log_lake.udfs.format.schema import RAW_SEGMENTS, TABLES

log = logging.getLogger(__name__)
_PRODUCER, _NAMESPACE = "kafka-log-lake", "kafka-log-lake"


class Lineage:
    """The sender of the events of runs. target: URL of a server, or path of a file; None sends none."""

    def __init__(self, target: str | None) -> None:
        self._client = None if target is None else _client(target)
        self._target = target

    @contextmanager
    def run(self, sources: Sequence[str], summary: Summary) -> Iterator[None]:
        """Sends START, and COMPLETE or FAIL after the block that fills the summary. sources: ``--source``."""
        if self._client is None:
            yield
            return
        self._send("START", sources, summary)
        try:
            yield
        except BaseException as error:
            why = one_line(error) if isinstance(error, Exception) else "interrupted"
            self._send("FAIL", sources, summary, why)
            raise
        self._send("COMPLETE", sources, summary)

    def _send(self, state: str, sources: Sequence[str], summary: Summary, error: str | None = None) -> None:
        from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
        from openlineage.client.facet_v2 import (
            RunFacet,
            error_message_run,
            input_statistics_input_dataset,
            output_statistics_output_dataset,
        )

        facets: dict[str, RunFacet] = {}
        if error is not None:
            facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(error, "python")
        job = "decode" if summary.chunks is None else "ingest"
        inputs = [InputDataset(*_dataset(source)) for source in sources]
        outputs = [OutputDataset(*_dataset(f"{summary.lake}/{name}")) for name in _tables(summary)]
        if state == "COMPLETE":
            if len(inputs) == 1:
                read = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(size=summary.bytes)
                inputs[0].inputFacets = {"inputStatistics": read}
            rows = {"records": summary.records, "batches": summary.batches, "quarantine": summary.damaged}
            for name, output in zip(_tables(summary), outputs, strict=True):
                if name in rows:
                    wrote = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(rows[name])
                    output.outputFacets = {"outputStatistics": wrote}
        event = RunEvent(
            eventTime=datetime.now(UTC).isoformat(),
            producer=_PRODUCER,
            eventType=RunState[state],
            run=Run(str(UUID(summary.run_id)), facets),
            job=Job(_NAMESPACE, job),
            inputs=inputs,
            outputs=outputs,
        )
        try:
            self._client.emit(event)  # type: ignore[union-attr]
        except Exception as failure:  # whatever a transport raises
            log.warning(
                "--lineage %s: the event %s can't be sent: %s", self._target, state, one_line(failure)
            )


def _client(target: str) -> Any:
    try:
        from openlineage.client import OpenLineageClient
    except ModuleNotFoundError as error:
        raise needs_extra("--lineage", error) from None
    if "://" in target:
        return OpenLineageClient(config={"transport": {"type": "http", "url": target}})
    if os.path.isdir(target) or not os.access(os.path.dirname(os.path.abspath(target)), os.W_OK):
        raise UserError(f"--lineage {target}: name a URL, or a file in a folder that exists")
    settings = {"type": "file", "log_file_path": target, "append": True}
    return OpenLineageClient(config={"transport": settings})


def _dataset(place: str) -> tuple[str, str]:
    """Returns namespace and name of a dataset, as OpenLineage names files and objects."""
    path = local_path(place)
    if path is not None:
        return "file", os.path.abspath(path)
    scheme, _, rest = place.partition("://")
    store, _, name = rest.partition("/")
    return f"{scheme}://{store}", name


def _tables(summary: Summary) -> list[str]:
    """Returns the names of the tables that a run writes."""
    if summary.chunks is not None:
        return [RAW_SEGMENTS.name]
    return [table.name for table in TABLES if table is not RAW_SEGMENTS]
