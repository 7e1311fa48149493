"""Runs ``kafka-log-lake decode-values``: fills typed tables of a lake by the schemas in the lake.

Decodes what is new since the last time, in worker processes of this machine, without Java.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial

from kafka_log_lake.pipelines.cli.commands.decode_values import DECODE_VALUES
from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.cli.status import phase
from kafka_log_lake.pipelines.cli.terminal import counted_noun, first_names, printable
from kafka_log_lake.pipelines.cli.text_tables import Section, text_lines
from kafka_log_lake.pipelines.decode_values.job import TypedJob, TypedTopic
from kafka_log_lake.pipelines.decode_values.kept import keep
from kafka_log_lake.pipelines.engine.on_demand import SparkOnDemand
from kafka_log_lake.pipelines.engine.run_command import run_command
from kafka_log_lake.pipelines.lake.address import open_lake
from kafka_log_lake.pipelines.lake.intents import Intents
from kafka_log_lake.pipelines.listing.list_segments import TopicFilter
from kafka_log_lake.pipelines.typed.schemas import keep_formats
from kafka_log_lake.pipelines.typed.sources import read_formats, read_sources
from kafka_log_lake.pipelines.typed.tables import typed_tables

log = logging.getLogger(__name__)

_NOT_WRITTEN = {
    "append": [],
    "latest": ["no table of --mode latest was written: no topic has changed"],
    "cdc": ["no table of --mode cdc was written: no topic that has changed has events of Debezium"],
}


def run(on_demand: SparkOnDemand, settings: Settings) -> None:
    """Brings the typed tables up to date and prints what was done.

    Raises a UserError for schemas that can't be read, where no topic is chosen, and while another job writes.
    """
    began = time.monotonic()
    address = open_lake(settings.require_lake())
    done, kept = update(on_demand, settings, address)
    if not done:
        _check_topics(settings, address)
    seconds = round(time.monotonic() - began, 3)
    if settings.json:
        topics = [as_json(result) for result in done]
        print(json.dumps({"lake": address, "seconds": seconds, "topics": topics, "kept": kept}))
    else:
        print("\n".join([*_lines(done, address, seconds), *kept_lines(address, kept, settings.mode)]))


def _check_topics(settings: Settings, address: str) -> None:
    """Raises a UserError where the settings exclude every topic with a typed table."""
    is_meant = TopicFilter(settings.topics, settings.exclude_topics)
    topics = sorted(table.topic for table in typed_tables(address) if table.folder == "typed")
    if topics and not any(map(is_meant, topics)):
        raise UserError(
            f"no topic matches --topics and --exclude-topics; typed tables: {first_names(topics)}"
        )


def update(on_demand: SparkOnDemand, settings: Settings, address: str) -> tuple[list[TypedTopic], list[str]]:
    """Brings typed and kept tables up to date under the lake's lock.

    Returns what changed, by topic, and the tables of ``--mode`` that were written.
    """
    is_meant = TopicFilter(settings.topics, settings.exclude_topics)
    others = read_sources(settings.schemas, settings.registry)
    formats = None if settings.formats is None else read_formats(settings.formats)
    choices = {
        "infers": settings.json_values == "infer",
        "fills": settings.fill_defaults,
        "is_flat": settings.value_columns == "flat",
    }
    job = TypedJob(address, on_demand.run_stage, others, **choices)

    def progress() -> str:
        if not (job.progress and on_demand.is_plain):
            return job.progress
        return f"{job.progress}, {on_demand.processes.finished_share():.0%} of its files"

    with Intents(address).lock():
        if formats is not None and keep_formats(address, formats):
            log.warning("--formats: these replace other formats that the lake kept")
        with phase("decoding values", progress):
            done = job.run(is_meant)
        if settings.mode == "append":
            return done, []
        with phase(f"writing the tables of --mode {settings.mode}"):
            return done, keep(address, settings.mode, is_meant)


def kept_lines(address: str, kept: Sequence[str], mode: str) -> list[str]:
    """Returns lines on which tables of ``--mode`` were written, or why none."""
    return [f"written: {printable(address)}/{printable(name)}" for name in kept] or _NOT_WRITTEN[mode]


def as_json(topic: TypedTopic) -> dict[str, object]:
    """Returns a topic's result as an object of the report ``--json``: all fields but ``counts``."""
    return {name: value for name, value in asdict(topic).items() if name != "counts"}


def _lines(done: Sequence[TypedTopic], address: str, seconds: float) -> list[str]:
    if not done:
        return ["the typed tables hold everything: nothing new"]
    rows = [
        (printable(result.topic), f"{result.rows:,}", f"{result.errors:,}", _formats(result))
        for result in done
    ]
    section = Section("typed tables", ("topic", "records", "errors", "values"), rows, (1, 2))
    errors = sum(result.errors for result in done)
    records = counted_noun(sum(result.rows for result in done), "record")
    verdict = f"{records} of {counted_noun(len(done), 'topic')} decoded in {seconds:.1f} s; "
    verdict += (
        f"{counted_noun(errors, 'payload')} could not be decoded: see the table value_errors"
        if errors
        else "every key and value was decoded"
    )
    return [*text_lines(section, ""), "", verdict, f"tables: {address}/typed/<topic>"]


def _formats(topic: TypedTopic) -> str:
    """Returns the formats of the values, the most frequent first."""
    counts: Counter[str] = Counter()
    for side, label, _, reason, count in topic.counts:
        if side == "value":
            counts[f"{reason} ({label})" if reason else label] += count
    return ", ".join(f"{name} {count:,}" for name, count in counts.most_common(4))


main = partial(run_command, DECODE_VALUES, run)
