"""Looks for a text in bytes: two of its bytes are compared at many places at once, in vector registers."""

from __future__ import annotations

from typing import Any

from udfs.kernels.jit import inlined, kernel

_BLOCK = 256  # places that are looked at before a branch


@inlined
def _is_at(data: Any, at: int, text: Any) -> bool:
    i = 0
    while i < len(text) and data[at + i] == text[i]:
        i += 1
    return i == len(text)


@kernel
def contains(data: Any, at: int, end: int, text: Any, one: int, other: int) -> bool:
    """Whether ``text`` (uint8[m], m > 0) lies in ``data[at:end]`` (uint8).

    ``one``, ``other``: places in the text of the two bytes that are compared first: rare ones.
    """
    last = end - len(text)
    first, second = text[one], text[other]
    while at <= last:
        stop = min(at + _BLOCK, last + 1)
        found = 0
        for i in range(at, stop):
            found |= (data[i + one] == first) & (data[i + other] == second)
        if found:
            for i in range(at, stop):
                if data[i + one] == first and data[i + other] == second and _is_at(data, i, text):
                    return True
        at = stop
    return False


@kernel
def plain_batches_with(window: Any, batches: Any, text: Any, one: int, other: int, out: Any) -> None:
    """Note in ``out`` (bool[n]) which of ``batches`` (BATCH[n]) hold ``text``; of compressed ones all may."""
    for k in range(len(batches)):
        e = batches[k]
        if not out[k]:
            at = e["data_at"]
            out[k] = e["codec"] != 0 or contains(window, at, at + e["data_size"], text, one, other)
