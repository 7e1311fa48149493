"""Builds the last line of a command, for a reader who is no expert.

It says what was checked, how much of it is sound, what is lost, and what could not be checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kafka_log_lake.pipelines.cli.terminal import counted_noun
from kafka_log_lake.pipelines.cli.text_tables import size_text


@dataclass(frozen=True)
class Verdict:
    """What a command checked and found, from which it makes its last line.

    checked: what was checked, in words. bytes: of it; damaged_bytes: of these, None if not known. faults:
    what is wrong, each in words; "" is left out. lost: what it cost. unchecked: what could not be read, or
    was left out. notes: what else a reader must know, though it is no fault.
    """

    checked: str
    bytes: int
    damaged_bytes: int | None = 0
    faults: Sequence[str] = ()
    lost: Sequence[str] = ()
    unchecked: Sequence[str] = ()
    notes: Sequence[str] = ()

    @property
    def is_sound(self) -> bool:
        return not any((*self.faults, *self.lost, *self.unchecked))

    @property
    def is_faulty(self) -> bool:
        """Says whether the sentence begins with "not sound"."""
        return any((*self.faults, *self.lost))

    @property
    def sentence(self) -> str:
        """Returns the result in one line, which begins with ``sound:``, ``not sound:`` or ``incomplete:``."""
        faults, lost, unchecked, notes = (
            ", ".join(filter(None, parts)) for parts in (self.faults, self.lost, self.unchecked, self.notes)
        )
        if self.is_sound:
            parts = [f"{self.checked} checked", "nothing is damaged, nothing is lost", notes]
            return f"sound: {'; '.join(filter(None, parts))}"
        parts = [f"{self.checked} checked{self._sound_share()}", faults]
        parts.append(f"lost: {lost}" if lost else "no offset is lost" if faults else "")
        parts += [f"not checked: {unchecked}" if unchecked else "", notes]
        kind = "not sound" if self.is_faulty else "incomplete"
        return f"{kind}: " + "; ".join(filter(None, parts))

    @property
    def line(self) -> str:
        """Returns the last line of a command: ``verdict:`` and the sentence."""
        return f"verdict: {self.sentence}"

    def _sound_share(self) -> str:
        if self.damaged_bytes is None or not self.bytes:
            return ""
        share = 100 * max(0, self.bytes - self.damaged_bytes) / self.bytes
        shown = f"{share:.3g}" if share < 99.95 or not self.damaged_bytes else "over 99.9"
        return f", {shown}% of the bytes are sound"


@dataclass(frozen=True)
class Tails:
    """Ends of logs that no batch covers: torn logs end in an incomplete batch, empty ones are zeros alone.

    growing: torn logs to which bytes were added since, and which are not among ``torn``. zeroed: segments of
    zeros alone that others of their log follow, in logs that have batches. claimed: offsets that the headers
    of incomplete batches claim.
    """

    torn: int = 0
    torn_bytes: int = 0
    empty: int = 0
    empty_bytes: int = 0
    zeroed: int = 0
    zeroed_bytes: int = 0
    claimed: int = 0
    growing: int = 0

    @property
    def bytes(self) -> int:
        return self.torn_bytes + self.empty_bytes + self.zeroed_bytes

    @property
    def faults(self) -> list[str]:
        return [
            f"{counted_noun(self.empty, 'log')} of nothing but zeros" if self.empty else "",
            f"{counted_noun(self.zeroed, 'segment')} of nothing but zeros "
            f"({counted_noun(self.zeroed_bytes, 'byte')})"
            if self.zeroed
            else "",
        ]

    @property
    def lost(self) -> list[str]:
        unknown = f"an unknown number of offsets in the tails of {counted_noun(self.empty, 'log')}"
        return [unknown if self.empty else ""]

    @property
    def unchecked(self) -> list[str]:
        """Describes incomplete last batches: no file says that a broker had written them to the end."""
        if not self.torn:
            return []
        claim = f", which {_claim(self.torn)} {counted_noun(self.claimed, 'offset')}" if self.claimed else ""
        torn = f"{counted_noun(self.torn, 'incomplete last batch')} ({counted_noun(self.torn_bytes, 'byte')}"
        return [f"{torn}{claim}), still being written or cut off"]

    @property
    def notes(self) -> list[str]:
        logs = counted_noun(self.growing, "log")
        return [f"{logs} grew meanwhile, with an incomplete batch at the end" if self.growing else ""]


def _claim(count: int) -> str:
    return "claims" if count == 1 else "claim"


def claimed_by(claims: Iterable[tuple[int, int]]) -> int:
    """Returns how many offsets incomplete batches claim.

    claims: first and last offset of each, by its header.
    """
    return sum(max(0, last - first + 1) for first, last in claims)


def segments_text(segments: int, size: int) -> str:
    """Returns a number of segments and their bytes as text: ``3 segments (25.9 kB)``."""
    return f"{counted_noun(segments, 'segment')} ({size_text(size)})"
