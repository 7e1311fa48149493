"""Lists the files of this project's packages, in a folder or in the zip that Spark ships, and their digest.

Needs no other module of ours, so that it can go as code to workers that have none (``udfs.spark.preflight``).
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any


def package_files(place: Any, path: str) -> Iterator[tuple[str, bytes]]:
    """Yields (path, bytes) of a file, or of every file below a folder, in the order of their names.

    place: the file or folder, a ``Traversable`` of ``importlib.resources``; path: its path.
    """
    if place.is_file():
        yield path, place.read_bytes()
    elif place.name != "__pycache__":
        for child in sorted(place.iterdir(), key=lambda c: c.name):
            yield from package_files(child, f"{path}/{child.name}")


def find_package(name: str) -> tuple[object, str]:
    """Finds a package without its import: a later zip may bring another one, which an import would hide.

    Returns it as a ``Traversable``, and the folder or zip that holds it; None and "" if it is not there.
    """
    spec = find_spec(name)
    folder = next(iter(spec.submodule_search_locations or ()), "") if spec is not None else ""
    place = os.path.dirname(folder)
    if os.path.isdir(folder):
        return Path(folder), place
    return (zipfile.Path(place, f"{name}/"), place) if zipfile.is_zipfile(place) else (None, "")


def code_digest(files: Iterable[tuple[str, bytes]], begin: bytes = b"") -> str:
    """Returns a digest of the Python files among (path, bytes), as hexadecimal digits.

    It is the same for the same sources in a folder and in a zip. begin: what else it depends on.
    """
    digest = hashlib.sha256(begin)
    for path, source in files:
        if path.endswith(".py"):
            digest.update(f"\0{path}\0{len(source)}\0".encode() + source)
    return digest.hexdigest()
