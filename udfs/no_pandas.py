"""Keeps pyarrow from importing pandas, in a process whose start a person waits for."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pyarrow as pa

_PANDAS = "pandas"


class _NoPandas:
    """An import hook that raises a ModuleNotFoundError for pandas."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: object = None) -> None:
        if name == _PANDAS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def without_pandas() -> None:
    """Makes pyarrow work without pandas in this process; ``import pandas`` works as before.

    pyarrow imports pandas, where it is installed, for the first array that it makes of a list: 0.3 s, a
    quarter of a short command. It looks once and keeps the answer: ``to_pandas`` then raises an ImportError,
    so this is for the programs alone, not for their functions in a notebook.
    """
    if _PANDAS in sys.modules:
        return
    sys.meta_path.insert(0, _NoPandas)
    try:
        pa.array([])
    finally:
        sys.meta_path.remove(_NoPandas)
