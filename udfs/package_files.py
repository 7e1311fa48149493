"""Lists the files of this project's packages, in a folder or in the zip that Spark ships."""

from __future__ import annotations

from collections.abc import Iterator
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
