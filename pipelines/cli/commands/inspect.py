"""Declares the command ``inspect``: its settings, its arguments and its help."""

from __future__ import annotations

from kafka_log_lake.pipelines.cli.commands.arguments import number
from kafka_log_lake.pipelines.cli.declaration import Argument, Command, Screen
from kafka_log_lake.pipelines.cli.values import from_0

_PLACE = from_0(10**19)
INSPECT = Command(
    "inspect",
    "inspect_batch",
    "Show one batch byte by byte: what is damaged, and the most likely cause. Needs no Java.",
    ("include_deleted", "tier_key", "max_batch_uncompressed"),
    (
        Argument("file", "a .log file, with --offset a partition folder, with --browse any folder of logs"),
        number("position", "byte of the file where the batch begins", metavar="BYTE", parse=_PLACE),
        number("offset", "an offset that the batch has", parse=_PLACE),
        number(
            "records", "records that are shown, of damage those that are mended", default="20", parse=_PLACE
        ),
        Argument("html", "write an HTML page instead of printing", metavar="FILE"),
        Argument("json", "print one JSON object", is_switch=True),
        Argument("browse", "interactive: topics, segments, batches and fields", is_switch=True),
    ),
    extra="",
    screen=Screen(
        "FILE [--position BYTE | --offset N] [OPTIONS]",
        "Show one batch byte by byte: each field with its position, bytes, value and meaning; its checksum; "
        "what is damaged, and the most likely cause. Without --position and --offset: the first damage, or "
        "the first batch. Needs no Java.",
        (
            ("File", "FILE: .log file; a partition folder (--offset), of logs (--browse)"),
            ("", "include_deleted: with a folder, also .log.deleted files"),
            ("Batch", "position: its first byte", "offset: an offset in it"),
            ("Records", "records: that are shown; of damage those that are mended (20)"),
            ("Output", "html: an HTML page", "json: one JSON object"),
            ("", "browse: interactive; needs the extra browse"),
            ("Bound", "max_batch_uncompressed: larger batches are not expanded (256MiB)"),
        ),
        (
            "orders-0/00000000000000000000.log",
            "/var/lib/kafka/data/orders-0 --offset 4711",
            "orders-0/00000000000000000000.log --html batch.html",
        ),
        "0 shown, 2 no such file, position or offset.",
    ),
)
