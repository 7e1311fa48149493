"""Checks whether executors have what decoding needs, before a job on a cluster decodes anything."""

from __future__ import annotations

import logging
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from importlib import metadata

from pyspark.sql import SparkSession

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.terminal import counted_noun, first_names
from kafka_log_lake.pipelines.engine.driver import ADVICE, driver_of
from kafka_log_lake.udfs.spark.preflight import LIBRARIES, PROJECT, Executor, own_code

log = logging.getLogger(__name__)


def check_executors(spark: SparkSession) -> None:
    """Logs what the executors have that are there by now: a line for all that are alike.

    Raises a UserError where one can't decode: its Python does not start, it lacks a package, its code is not
    the driver's. Another version of a library is a warning.
    """
    executors = driver_of(spark).executors()
    for line in describe(executors):
        log.info("%s", line)
    problem = find_problem(executors, own_code()[0])
    if problem:
        raise UserError(problem)
    for name in LIBRARIES:
        driver_version = metadata.version(name)
        others = sorted({e.versions.get(name, driver_version) for e in executors} - {driver_version})
        if others:
            log.warning("%s is %s on executors and %s in the driver", name, ", ".join(others), driver_version)


def describe(executors: Sequence[Executor]) -> Iterator[str]:
    """Yields a line for each set of executors that have the same."""
    alike: dict[str, list[str]] = defaultdict(list)
    for executor in executors:
        libraries = [f"{name} {executor.versions.get(name, 'missing')}" for name in LIBRARIES]
        what = ", ".join([f"Python {executor.python}", *libraries, _code(executor)])
        alike[what].append(executor.host)
    for what, hosts in sorted(alike.items()):
        yield f"{counted_noun(len(hosts), 'executor')} on {first_names(sorted(set(hosts)))}: {what}"


def _code(executor: Executor) -> str:
    if not executor.code:
        return f"no {PROJECT}"
    place = os.path.relpath(executor.place, executor.folder)
    shown = executor.place if place.startswith("..") else f"./{place}"
    return f"{PROJECT} {executor.versions.get(PROJECT, 'not installed')} (code {executor.code}) from {shown}"


def find_problem(executors: Sequence[Executor], driver_code: str) -> str:
    """Says in one line why executors can't decode; "" if they can. own: the digest of the driver's code."""
    for executor in executors:
        if executor.broken:
            lacking = ", ".join(f"{name} ({why})" for name, why in executor.broken.items())
            return f"the Python of the executor on {executor.host} can't import {lacking}; {ADVICE}"
    for executor in executors:
        if executor.code != driver_code:
            codes = f"code {executor.code} on {executor.host}, {driver_code} in the driver"
            return f"executors have another release of {PROJECT} than the driver: {codes}; {ADVICE}"
    return ""
