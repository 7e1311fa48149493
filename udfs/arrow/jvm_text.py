"""UTF-8 as the JVM reads it: what is malformed becomes U+FFFD, never an error.

Python and the JVM replace the same maximal subparts, but for an encoded surrogate (ED A0..BF, and 80..BF if
it follows), which the JVM replaces by one U+FFFD and Python by one a byte.
"""

from __future__ import annotations

import codecs

import pyarrow as pa

_HANDLER = "jvm-replace"


def _replace(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    three = error.object[error.start : error.start + 3]
    if len(three) >= 2 and three[0] == 0xED and 0xA0 <= three[1] <= 0xBF:
        return "�", error.start + (3 if len(three) == 3 and 0x80 <= three[2] <= 0xBF else 2)
    return "�", error.end


codecs.register_error(_HANDLER, _replace)


def repair_utf8(raw: pa.Array) -> pa.Array:
    """binary[n] -> string[n], malformed bytes replaced."""
    return pa.array([text.decode("utf-8", _HANDLER) for text in raw.to_pylist()], pa.string())
