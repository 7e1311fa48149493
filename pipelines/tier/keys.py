"""Checks ``--tier-key``: the private keys of encrypted objects."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.udfs.storage.tier_keys import load_key, use_tier_keys


def use_keys(texts: Sequence[str]) -> None:
    """Makes the keys of texts ID=FILE known. Raises a UserError for one that can't be used."""
    files = dict(text.split("=", 1) for text in texts)
    for name, path in files.items():
        try:
            load_key(path)
        except ValueError as error:
            raise UserError(f"--tier-key {name}: {error}") from None
    use_tier_keys(files)
