"""The driver's side, from arguments to tables. Its modules are imported as ``kafka_log_lake.pipelines``."""

from __future__ import annotations

__all__ = ["register"]


def __getattr__(name: str) -> object:
    """Loads ``register`` at its first use, so that importing the package imports nothing."""
    if name in __all__:
        from kafka_log_lake.pipelines.dataframes.register import register

        return register
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
