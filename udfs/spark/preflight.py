"""Looks at what the Python of a worker has, before anything is decoded.

``look`` goes to the workers as code (``as_code``), as they may lack this project; the driver compares what
comes back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka_log_lake.udfs import package_files
from kafka_log_lake.udfs.package_files import code_digest, find_package
from kafka_log_lake.udfs.package_files import package_files as files_of

if TYPE_CHECKING:
    import pyarrow as pa

PROJECT = "kafka-log-lake"
PACKAGE = "kafka_log_lake"
LIBRARIES = ("pyarrow", "numba")
# What a worker imports to decode; the last imports all that is ours
NEEDED = ("numpy", "pyarrow", "numba", "zstandard", "lz4", "cramjam", f"{PACKAGE}.udfs.spark.tasks")


@dataclass(frozen=True)
class Executor:
    """The Python and the packages of one executor. folder: where it runs.

    versions: those of PROJECT and LIBRARIES that are installed. broken: module -> why it can't be imported.
    code: ``code_digest``, and place: the folder or zip that holds it; "" where it can't be imported.
    """

    host: str
    folder: str
    python: str
    versions: dict[str, str]
    broken: dict[str, str]
    code: str
    place: str

    @classmethod
    def of(cls, text: str) -> Executor:
        """Returns what ``look`` wrote as JSON."""
        return cls(**json.loads(text))


def own_code() -> tuple[str, str]:
    """Returns the digest of this project's code, and the folder or zip that holds it; "" for none."""
    package, place = find_package(PACKAGE)
    return (code_digest(files_of(package, PACKAGE))[:8], place) if package is not None else ("", "")


def look(needed: Sequence[str], imports: bool, _: Iterable[object]) -> Iterator[str]:
    """Yields an ``Executor`` as JSON.

    needed: modules that have to be there. imports: whether they are imported, which shows all that is wrong
    with them; else they are looked for.
    """
    import os
    import platform
    import socket
    from importlib import import_module, metadata
    from importlib.util import find_spec

    versions, broken = {}, {}
    for module in needed:
        try:
            if imports:
                import_module(module)
            elif find_spec(module) is None:
                broken[module] = f"No module named '{module}'"
        except Exception as error:  # a wheel for another CPU or C library may raise anything
            broken[module] = str(error) or type(error).__name__
    for package in (*LIBRARIES, PROJECT):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:  # not there, or the code of a checkout
            continue
    code, place = ("", "") if imports and broken else own_code()
    yield json.dumps(
        {
            "host": socket.gethostname(),
            "folder": os.getcwd(),
            "python": platform.python_version(),
            "versions": versions,
            "broken": broken,
            "code": code,
            "place": place,
        }
    )


def look_in_arrow(needed: Sequence[str], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields a row a task with ``look``, as a mapInArrow callable; imports nothing of what is needed."""
    import pyarrow as pa

    for _ in batches:
        pass
    yield pa.RecordBatch.from_pydict({"executor": [*look(needed, False, ())]})


@contextmanager
def as_code() -> Iterator[None]:
    """Lets Spark send these functions whole, and not by the names of modules that workers may lack."""
    import sys

    from pyspark import cloudpickle

    modules = (sys.modules[__name__], package_files)
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)
