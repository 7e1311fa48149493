"""Checks what the Python of an executor has, before anything is decoded.

``look`` goes to the workers as code, as they may lack this project; the driver compares what comes back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources

from kafka_log_lake.udfs.package_files import package_files

PROJECT = "kafka-log-lake"
LIBRARIES = ("pyarrow", "numba")
# What a worker imports to decode; the last imports all that is ours
_NEEDED = ("numpy", "pyarrow", "numba", "zstandard", "lz4", "cramjam", "kafka_log_lake.udfs.spark.tasks")


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


def code_digest() -> str:
    """Returns eight hexadecimal digits that are the same for the same sources, in a folder or a zip."""
    digest = hashlib.sha256()
    for path, content in package_files(resources.files("kafka_log_lake"), "kafka_log_lake"):
        if path.endswith(".py"):
            digest.update(f"{path}\0".encode() + content + b"\0")
    return digest.hexdigest()[:8]


def look(_: Iterable[int]) -> Iterable[str]:
    """Yields an ``Executor`` as JSON. Of this module it uses names alone: the worker may not have it."""
    import json
    import os
    import platform
    import socket
    from importlib import import_module, metadata

    versions, broken, code, place = {}, {}, "", ""
    for module in _NEEDED:
        try:
            import_module(module)
        except Exception as error:  # a wheel for another CPU or C library may raise anything
            broken[module] = str(error) or type(error).__name__
    for package in (*LIBRARIES, PROJECT):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:  # not there, or the code of a checkout
            continue
    if not broken:
        own = import_module("kafka_log_lake.udfs.spark.preflight")
        code, place = own.code_digest(), os.path.dirname(os.path.dirname(os.path.dirname(str(own.__file__))))
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
