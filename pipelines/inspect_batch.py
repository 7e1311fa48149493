"""``kafka-log-lake inspect FILE``: one batch, byte by byte, and what happened to it if it is damaged.

Needs no Java and no lake, writes nothing but the page of ``--html``.
"""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from typing import Any

if __package__ in (None, ""):  # spark-submit puts pipelines/ on sys.path; the imports need its parent
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from pipelines.command.commands import INSPECT
from pipelines.command.errors import UserError
from pipelines.command.generated import json_line
from pipelines.command.options import run_command
from pipelines.command.settings import Settings
from pipelines.command.status import say
from pipelines.command.streams import replaced_file
from pipelines.command.tables import open_console
from pipelines.command.terminal import printable


def run(settings: Settings, file: str, **options: Any) -> None:
    """Inspects one batch. Raises a UserError for a file, a position or an offset that is not there."""
    from udfs.source.byte_source import SourceError  # the decoder: --help does not need it

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
        from pipelines.inspection.browse import Browser
    except ImportError:
        raise UserError("--browse needs textual: pip install 'kafka-log-lake[browse]'") from None
    Browser(path, settings.max_batch_uncompressed, settings.include_deleted).run()


def _inspect(settings: Settings, file: str, options: dict[str, Any]) -> None:
    from pipelines.inspection.locate import Locator, segment_of
    from udfs.indexes.files import LEADER_EPOCH_FILE, OFFSET_INDEX, TIME_INDEX
    from udfs.inspection.batch import inspect
    from udfs.source.regular_file import refused_beside

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
            place = locator.first_damage()

        def shown(number: int, at: int) -> bool:
            return number < options["records"] or at == offset

        limit, most = settings.max_batch_uncompressed, options["records"]
        found = inspect(locator.source, locator.length, place, shown, limit, most)
    finally:
        locator.close()
    if html is not None:
        from pipelines.inspection.page import page

        with replaced_file(html, "--html") as made:
            made.write(page(file, found).encode("utf-8", "backslashreplace"))
        say(f"written: {html}")
    if options["json"]:
        from pipelines.inspection.text import to_json

        print(json_line(json.dumps(to_json(file, found), ensure_ascii=False)))
    elif html is None:
        from pipelines.inspection.text import print_inspection

        print_inspection(open_console(), file, found)


main = partial(run_command, INSPECT, run, with_spark=False)

if __name__ == "__main__":
    sys.exit(main())
