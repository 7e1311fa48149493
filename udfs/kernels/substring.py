"""Looks for a text in bytes: three of its bytes are compared at many places at once, in vector registers.
Of whole texts the lengths are compared first.
"""

from __future__ import annotations

import numpy as np

from kafka_log_lake.udfs.kernels.jit import inlined, kernel

_BLOCK = 1024  # places that are looked at before a branch


@inlined
def _is_at(data: np.ndarray, at: int, text: np.ndarray) -> bool:
    i = 0
    while i < len(text) and data[at + i] == text[i]:
        i += 1
    return i == len(text)


@kernel
def contains(data: np.ndarray, at: int, end: int, text: np.ndarray, places: np.ndarray) -> bool:
    """Tells whether ``text`` (uint8[m], m > 0) lies in ``data[at:end]`` (uint8).

    ``places``: int64[3], the positions in the text of the bytes that are compared first: rare ones.
    """
    last = end - len(text)
    a, b, c = places[0], places[1], places[2]
    first, second, third = text[a], text[b], text[c]
    while at <= last:
        stop = min(at + _BLOCK, last + 1)
        firsts, seconds, thirds = data[at + a : stop + a], data[at + b : stop + b], data[at + c : stop + c]
        found = False  # of booleans vectors are made, of bytes numbers of 64 bits
        for i in range(len(firsts)):
            found |= (firsts[i] == first) & (seconds[i] == second) & (thirds[i] == third)
        if found:
            for i in range(len(firsts)):
                if firsts[i] == first and seconds[i] == second and _is_at(data, at + i, text):
                    return True
        at = stop
    return False


@kernel
def plain_batches_with(
    window: np.ndarray, batches: np.ndarray, text: np.ndarray, places: np.ndarray, out: np.ndarray
) -> None:
    """Notes in ``out`` (bool[n]) which of ``batches`` (BATCH[n]) may hold ``text``: compressed ones may."""
    for k in range(len(batches)):
        e = batches[k]
        if not out[k]:
            at = e["data_at"]
            out[k] = e["codec"] != 0 or contains(window, at, at + e["data_size"], text, places)


@kernel
def equal_to(content: np.ndarray, bounds: np.ndarray, text: np.ndarray, out: np.ndarray) -> None:
    """Notes in ``out`` (bool[n]) which texts are ``text`` (uint8[m]).

    ``bounds``: int32[n + 1], where in ``content`` (uint8) each text begins, and where the last one ends.
    """
    for k in range(len(out)):
        at = bounds[k]
        out[k] = bounds[k + 1] - at == len(text) and _is_at(content, at, text)
