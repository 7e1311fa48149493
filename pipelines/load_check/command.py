"""``kafka-log-lake load-check PATH...``: replays the internal topics on a disk as Kafka loads them.

Says of each log that does not load which record stops which releases, why, and the smallest remedy. Needs no
Java and no lake, writes nothing.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Sequence
from functools import partial

from kafka_log_lake.pipelines.cli.commands.load_check import LOAD_CHECK
from kafka_log_lake.pipelines.cli.errors import DamageFound, UserError
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.cli.status import phase
from kafka_log_lake.pipelines.cli.terminal import counted_noun
from kafka_log_lake.pipelines.cli.text_tables import text_lines
from kafka_log_lake.pipelines.engine.run_command import run_command
from kafka_log_lake.pipelines.listing.list_segments import no_segments_error
from kafka_log_lake.pipelines.listing.uris import parse_source
from kafka_log_lake.pipelines.load_check.check import Check, check_loading
from kafka_log_lake.pipelines.load_check.found import table
from kafka_log_lake.pipelines.plan.listed import list_sources
from kafka_log_lake.udfs.values.internal.releases import LOADERS

log = logging.getLogger(__name__)


def load_check(settings: Settings, release: str | None = None) -> Check:
    """Replays the internal topics in the sources as releases of Kafka load them. Writes nothing.

    Parameters
    ----------
    settings: ``source`` names log directories, partition folders or ``.log`` files.
    release: one of LOADERS; None: all of them.

    Returns
    -------
    Check: the logs that do not load, with the record that stops the loader.

    Raises
    ------
    UserError: there is no segment.
    """
    listing = list_sources(settings)
    if not listing.segments.num_rows:
        raise no_segments_error(settings.source, listing)
    with phase("replaying internal topics"):
        return check_loading(listing, LOADERS if release is None else (release,))


def run(settings: Settings, path: Sequence[str] = (), **options: str) -> None:
    """Checks, and prints what does not load. With ``fail_on_damage`` that, and what was not replayed, raises
    DamageFound.
    """
    sources = (*path, *settings.source)
    if not sources:
        raise UserError("PATH is missing: name a log directory, partition folder, .log file or glob")
    places = tuple(parse_source(source).path for source in sources)
    release = None if options["as"] == "all" else options["as"]
    check = load_check(dataclasses.replace(settings, source=places), release)
    for text in check.warnings:
        log.warning("%s", text)
    if settings.json:
        print(json.dumps(_json(check)))
    else:
        if check.unloadable:
            print(*text_lines(table(check.unloadable)), sep="\n")
        print(_verdict(check))
    if settings.fail_on_damage and (check.unloadable or check.warnings):
        raise DamageFound


def _json(check: Check) -> dict[str, object]:
    return {
        "logs": check.logs,
        "unloadable": [entry.to_json() for entry in check.unloadable],
        "warnings": check.warnings,
        "verdict": _verdict(check),
    }


def _verdict(check: Check) -> str:
    if not check.logs:
        why = "see the warnings" if check.warnings else "the sources have none"
        return f"no internal topic was replayed: {why}"
    stopped = {entry[:3] for entry in check.unloadable if not entry.stop.after_cleaning}
    later = {entry[:3] for entry in check.unloadable} - stopped
    checked = counted_noun(check.logs, "internal log")
    if not stopped and not later:
        return f"{checked} replayed: all load{', as far as they were read' if check.warnings else ''}"
    words = [f"{len(stopped):,} do not load"] if stopped else []
    words += [f"{len(later):,} may not after compaction"] if later else []
    return f"{checked} replayed: {', '.join(words)}"


main = partial(run_command, LOAD_CHECK, run, with_spark=False)
