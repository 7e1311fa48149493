"""``kafka-log-lake inspect FILE``: shows one batch byte by byte, and what happened to it if it is damaged.

Needs no Java and no lake, writes nothing but the page of ``--html``.
"""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from typing import Any

from kafka_log_lake.pipelines.cli.commands.inspect import INSPECT
from kafka_log_lake.pipelines.cli.errors import UserError, needs_extra
from kafka_log_lake.pipelines.cli.generated import json_line
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.cli.status import say
from kafka_log_lake.pipelines.cli.streams import replaced_file
from kafka_log_lake.pipelines.cli.terminal import printable
from kafka_log_lake.pipelines.cli.text_tables import open_console
from kafka_log_lake.pipelines.engine.run_command import run_command
from kafka_log_lake.pipelines.tier.keys import use_keys


def run(settings: Settings, file: str, **options: object) -> None:
    """Inspects one batch. Raises a UserError for a file, a position or an offset that is not there."""
    from kafka_log_lake.udfs.storage.byte_source import SourceError  # the decoder: --help does not need it

    if options["position"] is not None and options["offset"] is not None:
        raise UserError("give --position or --offset, not both")
    if options["browse"]:
        _browse(settings, file)
        return
    try:
        _inspect(settings, file, options)
    except BrokenPipeError:
        raise
    except (OSError, SourceError) as error:
        raise UserError(f"{file}: {getattr(error, 'strerror', None) or error}") from None


def _browse(settings: Settings, path: str) -> None:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError("--browse needs a terminal")
    try:
        from kafka_log_lake.pipelines.inspect_batch.browse import Browser
    except ModuleNotFoundError as error:
        raise needs_extra("--browse", error) from None
    Browser(path, settings.max_batch_uncompressed, settings.include_deleted).run()


def _inspect(settings: Settings, file: str, options: dict[str, Any]) -> None:
    from kafka_log_lake.pipelines.inspect_batch.batch import inspect
    from kafka_log_lake.pipelines.inspect_batch.locate import Locator, segment_of
    from kafka_log_lake.udfs.indexes.files import LEADER_EPOCH_FILE, OFFSET_INDEX, TIME_INDEX
    from kafka_log_lake.udfs.storage.regular_file import refused_beside

    use_keys(settings.tier_key)
    position, offset, html = options["position"], options["offset"], options["html"]
    if os.path.isdir(file):
        file = segment_of(file, offset, settings.include_deleted)
    if html is not None and os.path.exists(html) and os.path.samefile(html, file):
        raise UserError(f"--html: {html} is the file that is inspected, and is not overwritten")
    stem, _ = os.path.splitext(os.path.basename(file))
    for refused in refused_beside(file, (LEADER_EPOCH_FILE, stem + OFFSET_INDEX, stem + TIME_INDEX)):
        say(printable(refused))
    locator = Locator(file)
    try:
        if position is not None:
            place = locator.at_position(position)
        elif offset is not None:
            place = locator.at_offset(offset)
        else:
            place = locator.first_damage(settings.max_batch_uncompressed)

        def shown(number: int, at: int) -> bool:
            return number < options["records"] or at == offset

        limit, most = settings.max_batch_uncompressed, options["records"]
        inspection = inspect(locator.source, locator.length, place, shown, limit, most)
    finally:
        locator.close()
    if html is not None:
        from kafka_log_lake.pipelines.inspect_batch.page import page

        with replaced_file(html, "--html") as made:
            made.write(page(file, inspection).encode("utf-8", "backslashreplace"))
        say(f"written: {html}")
    if options["json"]:
        from kafka_log_lake.pipelines.inspect_batch.text import to_json

        print(json_line(json.dumps(to_json(file, inspection), ensure_ascii=False)))
    elif html is None:
        from kafka_log_lake.pipelines.inspect_batch.text import print_inspection

        print_inspection(open_console(), file, inspection)


main = partial(run_command, INSPECT, run, with_spark=False)
