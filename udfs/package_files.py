"""The files of this project's packages, whether they lie in a folder or in the zip that Spark ships."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def package_files(place: Any, path: str) -> Iterator[tuple[str, bytes]]:
    """(path, bytes) of a file, or of every file below a folder, in the order of their names.

    place: as ``importlib.resources`` gives it; path: its own.
    """
    if place.is_file():
        yield path, place.read_bytes()
    elif place.name != "__pycache__":
        for child in sorted(place.iterdir(), key=lambda c: c.name):
            yield from package_files(child, f"{path}/{child.name}")
