"""Prints the summary of a job, and a round of ``--watch`` in one line."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime

from kafka_log_lake.pipelines.cli.terminal import counted_noun
from kafka_log_lake.pipelines.cli.text_tables import open_console, print_table
from kafka_log_lake.pipelines.decode.summary import Summary

log = logging.getLogger(__name__)


def print_summary(summary: Summary, as_json: bool) -> None:
    """Logs the warnings, then prints the summary as the last lines of standard output."""
    for text in summary.warnings:
        log.warning("%s", text)
    if as_json:
        print(summary.to_json())
    elif sys.stdout.isatty():
        _print_rich(summary)
    else:
        print(summary.to_text())
    sys.stdout.flush()


def print_round(summary: Summary) -> None:
    """Logs the warnings, and prints a round of ``--watch`` as one line that begins with the time."""
    for text in summary.warnings if summary.segments else ():
        log.warning("%s", text)
    text = summary.headline()
    if summary.segments:
        text += f", {counted_noun(summary.records, 'record')}"
    if summary.damaged:
        text += f", {counted_noun(summary.damaged, 'damaged range')} "
        text += f"({counted_noun(summary.damaged_bytes, 'byte')})"
    print(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {text}", flush=True)


def _print_rich(summary: Summary) -> None:
    from rich.text import Text

    console = open_console()
    console.print(Text(summary.headline(), style="bold"))
    for section in summary.sections():
        print_table(console, section)
    for line in summary.other_lines():
        console.print(Text(line))
    for line in summary.next_lines():
        console.print(Text(line), soft_wrap=True)
    is_sound = summary.verdict().is_sound and not summary.unreadable_chunks
    console.print(Text(summary.verdict_line(), style="green" if is_sound else "bold red"), soft_wrap=True)
