"""The project's code as a worker and a driver compare and share it."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

# What workers may need; beside the jobs' stages these are the functions of SQL and the data source
PACKAGES = ("udfs", "pipelines", "pyspark_kafka_log")
# What they import of others
LIBRARIES = ("numba", "numpy", "pyarrow", "pandas", "zstandard", "lz4", "cramjam", "regex", "wcmatch", "yaml")


def _files(place: Any, path: str) -> Iterator[tuple[str, bytes]]:
    """(path, bytes) of every file in a folder of a package, or of its zip, in order."""
    for child in sorted(place.iterdir(), key=lambda c: c.name):
        below = f"{path}/{child.name}"
        if child.is_file():
            yield below, child.read_bytes()
        elif child.name != "__pycache__":
            yield from _files(child, below)


def _all_files() -> Iterator[tuple[str, bytes]]:
    for package in PACKAGES:
        yield from _files(resources.files(package), package)


def digest() -> str:
    """A text that differs where any file of the packages does. Raises an ImportError without the packages."""
    found = hashlib.sha256()
    for path, content in _all_files():
        found.update(f"{path}\0{len(content)}\0".encode() + content)
    return found.hexdigest()[:16]


def write_zip(path: Path) -> None:
    """A zip of the packages, from which Python imports them."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in _all_files():
            made.writestr(zipfile.ZipInfo(name), content)
