"""Finds wrong leader epochs in a log: they lie outside the checksum of a batch."""

from __future__ import annotations

import numpy as np


def wrong_epochs(epoch: np.ndarray, log: np.ndarray | None = None) -> np.ndarray:
    """Returns bool[n]: batches whose epoch is not between those of both neighbours, where these do not fall.

    epoch: int[n], of sound batches of magic 2 in the order of the files; -1 none. log: int[n], the log of
    each; None if all are of one.
    """
    wrong = np.zeros(len(epoch), dtype=bool)
    before, middle, after = epoch[:-2], epoch[1:-1], epoch[2:]
    wrong[1:-1] = (before >= 0) & (before <= after) & ((middle < before) | (middle > after))
    if log is not None:
        wrong[1:-1] &= log[2:] == log[:-2]
    return wrong
