"""``python -m pipelines.format_report --lake L``: what records take in each format and codec, and its cost.

Fills the table ``format_savings`` (``pipelines.report.cost.format_savings``) and prints it by topic. Changes
no other table.
"""

from __future__ import annotations

import os
import sys
import time
from functools import partial

if __package__ in (None, ""):  # spark-submit puts pipelines/ on sys.path; the imports need its parent
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from pyspark.sql import SparkSession

from pipelines.command.commands import FORMAT_REPORT
from pipelines.command.on_demand import SparkOnDemand
from pipelines.command.options import run_command
from pipelines.command.settings import CostSettings
from pipelines.report.cost import format_savings, savings_text
from pipelines.report.cost.format_savings import Report


def run(spark: SparkSession, settings: CostSettings) -> Report:
    """Computes the report and commits it, if the lake or the settings changed since the latest run."""
    return format_savings.run(SparkOnDemand(settings, given=spark), settings)


def _job(on_demand: SparkOnDemand, settings: CostSettings) -> None:
    began = time.monotonic()
    report = format_savings.run(on_demand, settings)
    seconds = time.monotonic() - began
    to_text = savings_text.to_json if settings.json else savings_text.to_text
    print(to_text(report, seconds, settings.currency))


main = partial(run_command, FORMAT_REPORT, _job)

if __name__ == "__main__":
    sys.exit(main())
