"""What has changed in this checkout: which tests of the full set a plain ``make test`` runs."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path

_BASES = ("origin/main", "origin/HEAD", "HEAD")


def has_changed(paths: Iterable[str], root: Path) -> bool:
    """Whether a changed file is one of these paths, relative to the root, or lies below one (``udfs/``)."""
    return any(name.startswith(tuple(paths)) for name in changed_files(root))


@cache
def changed_files(root: Path) -> frozenset[str]:
    """Files that differ from where the branch left ``origin/main``, or from the last commit without one.

    None where this is no checkout of git.
    """
    for base in _BASES:
        point = _git(root, "merge-base", base, "HEAD")
        if point:
            new = _git(root, "ls-files", "--others", "--exclude-standard")
            return frozenset([*_git(root, "diff", "--name-only", *point), *new])
    return frozenset()


def _git(root: Path, *words: str) -> list[str]:
    done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []
