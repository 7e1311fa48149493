"""This project's packages as a worker of Spark Connect has them, and the zip with which it gets them."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path

import pyarrow as pa

from udfs.package_files import package_files

# What workers may need: the jobs' stages, the functions of SQL, the data source
PACKAGES = ("udfs", "pipelines", "pyspark_kafka_log")
# Packages of others that these import
_LIBRARIES = ("numba", "pyarrow", "pandas", "zstandard", "lz4", "cramjam", "regex", "wcmatch", "yaml")

LOOK_DDL = "code string, missing string"


def look() -> tuple[Callable[[], str], Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]]:
    """A function that gives a hash of our packages here, and a mapInArrow callable that runs it on a worker.

    The callable gives one row a task: the hash, and one of our libraries that is missing, or "". Both are
    made of nothing but what Spark sends, and import no package of ours: a worker that has imported one would
    not take it from a zip that comes later.
    """
    packages, libraries = PACKAGES, _LIBRARIES

    def code() -> str:
        import hashlib
        import os
        from importlib.util import find_spec

        found = hashlib.sha256()
        for package in packages:
            spec = find_spec(package)
            folders = spec.submodule_search_locations if spec is not None else None
            if not folders or not os.path.isdir(folders[0]):
                return ""  # none, or in a zip
            for folder, below, names in os.walk(folders[0]):
                below[:] = sorted(name for name in below if name != "__pycache__")
                for name in sorted(names):
                    path = os.path.join(folder, name)
                    with open(path, "rb") as file:
                        content = file.read()
                    found.update(f"{os.path.relpath(path, folders[0])}\0{len(content)}\0".encode() + content)
        return found.hexdigest()[:16]

    def tell(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from importlib.util import find_spec

        for _ in batches:
            pass
        missing = next((name for name in libraries if find_spec(name) is None), "")
        yield pa.RecordBatch.from_pydict({"code": [code()], "missing": [missing]})

    return code, tell


def write_zip(path: Path) -> None:
    """Writes a zip of the packages, from which Python imports them."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for package in PACKAGES:
            for name, content in package_files(resources.files(package), package):
                made.writestr(zipfile.ZipInfo(name), content)
