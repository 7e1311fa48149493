"""Next to the report: for each of its worst segments the page that ``inspect`` makes of the damaged range."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from pipelines.command.errors import UserError
from pipelines.report.quality.facts import Report, Worst
from pipelines.source.uris import local_path

_RECORDS = 20
_EXPANDED = 256 << 20  # bytes that a batch may expand to


def with_batch_pages(report: Report, folder: Path) -> Report:
    """The report with the names of these pages, which are written to the folder.

    There is none of a segment that this machine does not have any more, or that has another batch there now.
    """
    return replace(
        report, worst=[_with_page(one, folder / f"batch-{i}.html") for i, one in enumerate(report.worst, 1)]
    )


def _with_page(worst: Worst, page: Path) -> Worst:
    path = local_path(worst.segment)
    if path is None or not os.path.isfile(path):
        return worst
    from pipelines.inspection import page as html  # the decoder: a lake without damage needs none
    from pipelines.inspection.locate import Locator
    from udfs.inspection.batch import inspect
    from udfs.source.byte_source import SourceError

    try:
        locator = Locator(path)
        try:
            place = locator.at_position(worst.position)
            found = inspect(
                locator.source, locator.length, place, lambda number, _: number < _RECORDS, _EXPANDED
            )
        finally:
            locator.close()
    except (OSError, SourceError, UserError):
        return worst
    page.write_text(html.page(path, found), encoding="utf-8", errors="backslashreplace")
    return replace(worst, page=page.name)
