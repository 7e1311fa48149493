"""Whole segments of a few changed batches: bytes for the whole decoder, made from a seed.

Half of the changed batches are changed as they lie in a file, so their compressed payloads too; half are
changed open and compressed again, so that what is wrong lies after a sound compressed stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.fuzz import mutate, seeds


@dataclass
class Maker:
    """Makes segments; the same ones for the same ``seed``."""

    seed: int

    def __post_init__(self) -> None:
        self.state = np.array([self.seed], dtype=np.uint64)
        self._work = np.zeros(mutate.ROOM, dtype=np.uint8)
        self._stored = seeds.packed(seeds.stored())
        self._open = seeds.packed(seeds.opened())
        self._draw: Any = mutate.draw

    def number(self, bound: int) -> int:
        """A number from 0 to below ``bound``."""
        return int(self._draw(self.state, bound))

    def _sound(self) -> bytes:
        n = mutate.pick(*self._stored, self._work, self.state)
        return self._work[:n].tobytes()

    def batch(self) -> bytes:
        """A changed batch."""
        work, state = self._work, self.state
        if self.number(2):
            n = mutate.change(work, mutate.pick(*self._stored, work, state), state)
        else:
            n = self._reclosed()
        mutate.mend_mostly(work, n, state)
        return work[:n].tobytes()

    def _reclosed(self) -> int:
        """An open seed, changed, its inner messages mended, and compressed again: into the work buffer."""
        work, state = self._work, self.state
        n = mutate.change(work, mutate.pick(*self._open, work, state), state)
        mutate.mend_mostly(work, n, state)
        at = 61 if n > 61 and work[16] == 2 else -1
        if n > 17 and work[16] < 2:
            at = int(mutate.value_of(work, n))
        if not 0 < at < n:
            return int(n)
        batch = seeds.close(work[:n].tobytes(), at)[: mutate.MOST]
        work[: len(batch)] = np.frombuffer(batch, dtype=np.uint8)
        mutate.mend(work, len(batch))
        return len(batch)

    def segment(self) -> bytes:
        """One to three batches, some of them changed, now and then with something else between or cut off."""
        parts = []
        for _ in range(1 + self.number(3)):
            parts.append(self.batch() if self.number(3) else self._sound())
            if self.number(16) == 0:
                parts.append(bytes([self.number(2) * self.number(256)]) * (1 + self.number(80)))
        data = b"".join(parts)
        if self.number(8) == 0:
            data = data[: 1 + self.number(len(data))]
        return data
