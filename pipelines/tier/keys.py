"""Reads ``--tier-key``: the private keys of encrypted objects."""

from __future__ import annotations

import re

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.udfs.storage.tier_keys import load_key, use_tier_keys

_KEY = re.compile(r"([^=]+)=(.+)", re.DOTALL)


def use_keys(texts: tuple[str, ...]) -> None:
    """Makes the keys of ``--tier-key ID=FILE.pem`` known. Raises a UserError for one that can't be used."""
    files: dict[str, str] = {}
    for text in texts:
        match = _KEY.fullmatch(text)
        if match is None:
            raise UserError(
                "--tier-key takes ID=FILE.pem: the id of the key in the manifests, and a private key"
            )
        try:
            load_key(match[2])
        except ValueError as error:
            raise UserError(f"--tier-key {match[1]}: {error}") from None
        files[match[1]] = match[2]
    use_tier_keys(files)
