"""Names the releases of Kafka whose definitions and loaders of internal topics are here.

A module of its own: the help of commands names the releases, and loads no definition for that.
"""

from __future__ import annotations

RELEASES = ("4.1", "4.2", "4.3", "4.4")
NEWEST = RELEASES[-1]
# Releases whose loaders of internal topics differ. Each stands for those before it; "4.1" for the last 4.1.x
LOADERS = ("4.1.1", "4.1", "4.2.0", "4.2", "4.3", "4.4")


def definitions_of(loader: str) -> str:
    """Returns the release of RELEASES whose definitions a loader of LOADERS has."""
    return ".".join(loader.split(".")[:2])


def is_after(release: str, other: str) -> bool:
    """Tells whether a release of RELEASES came after another one."""
    return RELEASES.index(release) > RELEASES.index(other)
