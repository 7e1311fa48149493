"""What most likely happened where a checksum is wrong or no batch begins: first what can be proved.

A cause is named where bytes are that can't be there, not because they look odd.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from udfs.format import layout as f
from udfs.inspection import causes
from udfs.inspection.causes import CERTAIN, LIKELY, POSSIBLE, Cause
from udfs.inspection.damage import Damage
from udfs.inspection.other_batches import between_batches, end_of_segment, header_inside, inner_batch
from udfs.inspection.written_over import (
    file_of_another_kind,
    in_payload,
    over_end,
    over_header,
    over_records,
)


def causes_of(damage: Damage, can_read: Callable[[bytes], bool]) -> list[Cause]:
    """The most likely cause first; one at least. can_read: whether records of a batch can be read."""
    if damage.is_whole and damage.is_sound(0):
        text = "the checksum of the whole is right: it was written as it is, with what is wrong inside of it"
        return [Cause(causes.UNKNOWN, POSSIBLE, text, damage.position, damage.taken)]
    proved = _proved(damage, can_read)
    if proved and proved[0].certainty != POSSIBLE:
        return proved
    made = [cause for cause in _likely(damage) if cause is not None] + proved
    return made or [_unknown(damage)]


def _proved(damage: Damage, can_read: Callable[[bytes], bool]) -> list[Cause]:
    """What makes the checksum right when it is undone; one byte of a long batch may do so by chance."""
    data, position = damage.data, damage.position
    if len(data) >= f.HEADER_UP_TO_MAGIC and not data.any():  # fewer begin any offset
        text = f"all {len(data)} bytes up to the end of the segment are zeros: space that was never written"
        return [Cause(causes.ZEROS, CERTAIN, text, position, len(data))]
    if made := list(causes.flips_of_header(data, position)):
        return made
    ends = [one.begin - position for one in damage.sound] + [len(data)]
    under = causes.change_under_checksum(data[: damage.size], position) if damage.is_whole else None
    if under is not None and under.kind == causes.BYTE and not can_read(under.mended or b""):
        under = None  # by chance
    if under is not None and under.certainty != POSSIBLE:
        return [under]
    if (header := causes.change_of_header(data, position, ends)) is not None:
        return [header]
    if damage.is_whole:
        for end in ends:
            if (more := causes.put_in(data, damage.size, end - damage.size, position)) is not None:
                return [more]
    return [under] if under is not None else []


def _likely(damage: Damage) -> Iterator[Cause | None]:
    yield inner_batch(damage)
    inside = header_inside(damage)
    broken = damage.break_
    if (
        inside is not None
        and broken is not None
        and broken.at < inside.position - damage.position < broken.end
    ):
        yield replace(inside, certainty=LIKELY)
    yield file_of_another_kind(damage)
    yield over_header(damage)
    yield over_records(damage)
    yield over_end(damage)
    yield between_batches(damage)
    yield in_payload(damage)
    yield end_of_segment(damage)
    yield inside


def _unknown(damage: Damage) -> Cause:
    text = "more than one byte is changed, in a way that was not recognized"
    if damage.is_whole and damage.header["codec"] == f.CODEC_NONE and damage.ends_right:
        if damage.break_ is None:
            text += "; all lengths are right: what is changed is inside of keys, values or the header"
        else:
            text += f"; the records can be read up to position {damage.position + damage.break_.at}"
    return Cause(causes.UNKNOWN, POSSIBLE, text, damage.position, damage.taken)
