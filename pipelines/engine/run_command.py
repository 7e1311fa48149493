"""Runs a command: parses its arguments, gives it Spark if it asks for it, returns its exit code."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence

from kafka_log_lake.pipelines.cli.declaration import Command
from kafka_log_lake.pipelines.cli.options import exit_code_of, parse_arguments, set_up_logging
from kafka_log_lake.pipelines.cli.status import say
from kafka_log_lake.pipelines.cli.terminal import counted_noun
from kafka_log_lake.pipelines.cli.text_tables import size_text
from kafka_log_lake.udfs import reads


def run_command(
    command: Command, run: Callable[..., object], argv: Sequence[str] | None = None, with_spark: bool = True
) -> int:
    """Parses the arguments, runs the command, stops the Spark that it started. Returns the exit code.

    run: takes the ``SparkOnDemand`` if ``with_spark``, the settings, and the other arguments by name.
    """
    set_up_logging()
    reads.reset()

    def job() -> None:
        parsed = parse_arguments(command, argv)
        if parsed is None:
            return
        settings, others = parsed
        if argv is None:  # the process runs this command and nothing else
            from kafka_log_lake.udfs.no_pandas import without_pandas

            without_pandas()
            gc.enable()
        if not with_spark:
            run(settings, **others)
            return
        # It imports Spark, which --help and a typo do not need
        from kafka_log_lake.pipelines.engine.on_demand import spark_on_demand

        # With the arrow sink Python workers decode and write; the JVM only plans
        only_plans = command.is_configurable and settings.sink == "arrow"
        with spark_on_demand(settings, only_plans=only_plans) as started:
            run(started, settings, **others)

    again = "; start the same command again to continue" if command.continues else ""
    code = exit_code_of(job, again)
    if reads.counted().tier_requests:
        say(_words(reads.counted()))
    # A process looks for garbage once more when it ends, which takes as long as a small log. DuckDB's module
    # reports what it did not free itself
    if argv is None and "duckdb" not in sys.modules:
        gc.freeze()
    return code


def _words(read: reads.Reads) -> str:
    sources = f"{counted_noun(read.requests, 'request')}, {size_text(read.bytes)} of the sources"
    tier = f"{counted_noun(read.tier_requests, 'request')}, {size_text(read.tier_bytes)} of the tier"
    return f"read: {sources}; {tier}"
