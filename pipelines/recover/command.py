"""``kafka-log-lake recover``: makes one log out of the copies that are left, and lists what is lost.

Compares the copies of partitions on the disks of brokers, heals damage in one by another, and decodes the one
true log into a lake. ``--write`` makes a log directory of it that a broker starts from. Needs no Java.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import tempfile
import time
from contextlib import ExitStack, nullcontext
from functools import partial

from kafka_log_lake.pipelines.cli.commands.recover import RECOVER
from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.cli.terminal import printable
from kafka_log_lake.pipelines.decode.decode_into import decode_into
from kafka_log_lake.pipelines.engine.on_demand import SparkOnDemand
from kafka_log_lake.pipelines.engine.run_command import run_command
from kafka_log_lake.pipelines.recover import job, text
from kafka_log_lake.pipelines.recover.report_folder import check_report_folder, report_folder
from kafka_log_lake.pipelines.recover.sources import find_copies
from kafka_log_lake.udfs.indexes.kraft_snapshot import METADATA_TOPIC

log = logging.getLogger(__name__)


def run(
    on_demand: SparkOnDemand,
    settings: Settings,
    report: str | None = None,
    write: str | None = None,
    node_id: int | None = None,
    metadata: bool = False,
    at: int | None = None,
) -> None:
    """Recovers, and prints the losses. Raises a UserError for sources or folders that can't be used.

    report: a folder for a page and a CSV of the losses. write: a new folder for a log directory that the
    broker ``node_id`` starts from. metadata: whether the metadata logs of controllers are compared instead;
    at: the offset of the metadata log before which the state is taken, None for its end.
    """
    if not settings.source:
        raise UserError("--source is missing: name the disks, such as --source broker1=/mnt/broker1")
    if report is not None:
        job.refuse_in_source("--report", report, settings.source)
        check_report_folder(report)
    if node_id is not None and write is None:
        raise UserError("--node-id needs --write DIR")
    number = 1 if node_id is None else node_id
    if metadata:
        _recover_metadata(settings, report, write, number, at)
        return
    if at is not None:
        raise UserError("--at needs --metadata")
    if settings.lake is None and report is None and write is None:
        raise UserError("name what to write: --lake ./recovered, --report DIR, --write DIR, or several")
    began = time.monotonic()
    with ExitStack() as stack:
        temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="kafka-log-lake-"))
        made = stack.enter_context(job.folder_to_write(write, settings.source)) if write else None
        job_settings = dataclasses.replace(settings, lake=settings.lake or f"{temporary}/lake")
        decode = partial(decode_into, on_demand, drops_missing=True)
        done = job.recover(job_settings, decode, on_demand.map)
        if report is not None:
            from kafka_log_lake.pipelines.recover.page import write_report  # for those that write

            write_report(done, report, settings.lake)
        if made is not None:
            from kafka_log_lake.pipelines.recover.broker_disk import write_recovered  # for those that write

            write_recovered(made, done, number)
    seconds = time.monotonic() - began
    for warning in done.inventory.warnings:
        log.warning("%s", printable(warning))
    if settings.json:
        print(json.dumps({**text.to_json(done, settings.lake), "seconds": round(seconds, 3)}))
        return
    lines = [*map(printable, text.lines(done, settings.lake, has_report=report is not None))]
    if report is not None:
        lines.append(f"report       {printable(report)}: recovery.html, lost_records.csv, restore.sh")
    lines.append(f"{printable(text.verdict(done))} ({seconds:.1f} s)")
    if write is not None:
        lines.append(f"log directory for broker {number}: {printable(write)}")
    print("\n".join(lines))


def _recover_metadata(
    settings: Settings, report: str | None, write: str | None, node_id: int, at: int | None
) -> None:
    """Compares metadata logs of controllers; prints and writes the state of the cluster."""
    from kafka_log_lake.pipelines.recover import quorum, state_files  # other runs start without them

    inventory = find_copies(settings.source, METADATA_TOPIC.__eq__)
    for warning in inventory.warnings:
        log.warning("%s", printable(warning))
    compared = quorum.compare_quorum(inventory, settings)
    state = quorum.state_at(compared, at)
    with job.folder_to_write(write, settings.source) if write else nullcontext() as made:
        if report is not None:
            with report_folder(report) as folder:
                state_files.write_state(state, folder)
        if settings.lake is not None:
            job.write_tables(settings.lake, state_files.tables(state))
        if made is not None:
            quorum.write_controller(compared, made, inventory, node_id)
    lines = quorum.quorum_lines(compared, state)
    if settings.json:
        fields: dict[str, object] = {
            "end": compared.end,
            "committed": compared.committed,
            "ends": compared.ends,
            "certainty": compared.sure,
        }
        fields |= {"doubts": compared.doubts, "unread": dict(+state.unread)}
        print(json.dumps({**fields, "text": lines}))
    else:
        print("\n".join(map(printable, lines)))


main = partial(run_command, RECOVER, run)
