"""Names the folders of a table's data files: one a partition, as Hive, Delta and Spark name them.

``topic=a/partition=0/magic=2`` lies below the table's folder, with the characters of ``_ESCAPED`` as ``%XX``
(Spark's ``ExternalCatalogUtils.escapePathName``). So readers that take partitions from paths agree with the
log of the table, and with a person who lists the folder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote

NULL = "__HIVE_DEFAULT_PARTITION__"
MAX_NAME_BYTES = 255  # of a file or folder, on common file systems
_ESCAPED = re.compile("[\x00-\x1f\"#%'*/:=?\\\\\x7f{\\[\\]^]")


def partition_folder(values: Mapping[str, str | None]) -> str:
    """Returns the path of a partition's folder below the table's. values: by partition column, in order."""
    return "/".join(f"{name}={_escaped(value)}" for name, value in values.items())


def _escaped(value: str | None) -> str:
    if value is None:
        return NULL
    escaped = _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", value)
    return f"%5F{escaped[1:]}" if escaped == NULL else escaped  # a string that is not null


def partition_values(folder: str) -> dict[str, str | None]:
    """Returns the values in the path of a folder, as ``partition_folder`` or Spark names it."""
    pairs = (part.split("=", 1) for part in folder.split("/"))
    return {name: None if value == NULL else _plain(value) for name, value in pairs}


def _plain(escaped: str) -> str:
    return re.sub("%([0-9A-Fa-f]{2})", lambda found: chr(int(found[1], 16)), escaped)


def longest_name(column: str, value: str) -> int:
    """Returns the bytes of a folder's name as deltalake writes it.

    It escapes all but ASCII letters, digits and -._~.
    """
    return len(f"{column}={quote(value, safe='')}")
