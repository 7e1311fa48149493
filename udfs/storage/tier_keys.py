"""Keeps where the keys of a tier are: ids and files of private keys, in one environment variable.

A driver passes the variable on to its workers and executors (``udfs.storage.store.store_variables``): names
of files alone, so that no key is in a task, a table or a text. Each process reads a key when it needs it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from kafka_log_lake.udfs.errors import install
from kafka_log_lake.udfs.storage.byte_source import SourceUnreadable
from kafka_log_lake.udfs.storage.regular_file import MOST_SMALL_BYTES, read_regular

if TYPE_CHECKING:
    from Crypto.PublicKey.RSA import RsaKey

VARIABLE = "KAFKA_LOG_LAKE_TIER_KEYS"
INSTALL = f"encrypted objects need more packages: {install('tier')}"


def use_tier_keys(files: Mapping[str, str]) -> None:
    """Sets the files of the private keys, by key id, for this process and those that it starts."""
    if files:
        os.environ[VARIABLE] = json.dumps({name: os.path.abspath(path) for name, path in files.items()})
    else:
        os.environ.pop(VARIABLE, None)


def use_key_files(texts: Sequence[str]) -> None:
    """Does what ``use_tier_keys`` does, with texts ID=FILE; nothing without any."""
    if texts:
        use_tier_keys(dict(text.split("=", 1) for text in texts))


def load_key(path: str) -> RsaKey:
    """Reads an RSA private key from a PEM file.

    Raises a ValueError that says what is wrong, and quotes nothing of the file.
    """
    try:
        from Crypto.PublicKey import RSA
    except ModuleNotFoundError:
        raise ValueError(INSTALL) from None
    try:
        key = RSA.import_key(read_regular(path, MOST_SMALL_BYTES))
    except OSError as error:
        raise ValueError(f"{path} can't be read: {error.strerror}") from None
    except (ValueError, IndexError, TypeError):
        raise ValueError(f"{path} is no PEM file of an RSA key without a password") from None
    if not key.has_private():
        raise ValueError(f"{path} is a public key: the private one decrypts")
    return key


def decrypt_data_key(encrypted: bytes, key_id: str) -> bytes:
    """Decrypts the AES key of an object: RSA-OAEP, SHA3-512 for hash and mask (``RsaEncryptionProvider``).

    By PyCryptodome: OpenSSL, and so ``cryptography``, refuses SHA-3 in OAEP. Raises a SourceUnreadable where
    the key is not given, or is not the right one.
    """
    path = json.loads(os.environ.get(VARIABLE) or "{}").get(key_id)
    if path is None:
        raise SourceUnreadable(f"it is encrypted by key {key_id}: --tier-key {key_id}=FILE.pem")
    try:
        key = _loaded(path)
    except ValueError as error:
        raise SourceUnreadable(f"it is encrypted by key {key_id}: {error}") from None
    from Crypto.Cipher import PKCS1_OAEP
    from Crypto.Hash import SHA3_512

    try:
        return PKCS1_OAEP.new(key, hashAlgo=SHA3_512).decrypt(encrypted)
    except (ValueError, TypeError):
        raise SourceUnreadable(
            f"its data key can't be decrypted by key {key_id}: it is damaged, or another key encrypted it"
        ) from None


_loaded = cache(load_key)
