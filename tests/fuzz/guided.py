"""Coverage-guided: atheris changes inputs towards branches of the plain decoder that were not taken yet.

``python -m tests.fuzz.guided guided FOLDER FINDINGS ...``, started by the watchdog. The kernels run as plain
Python with every index held to its array (``plain``). The first byte of an input chooses what the rest is:
a segment, one with its checksums made right, the records of a batch, a message set in a wrapper, or a
compressed payload, whose expansion is held against the reference codecs.
"""

from __future__ import annotations

import struct
import sys
import tempfile
import traceback
import zlib
from pathlib import Path
from typing import Any

import crc32c
import numpy as np

from tests.fuzz import checks, plain, seeds
from tests.fuzz.layers import Child, read_arguments, rule_of
from tests.support import reference_codecs
from tests.support.fast import BytesSource
from tests.support.reference_decoder import batch_size
from tests.support.segment_maker import SNAPPY, Batch, Message, wrap

MODES = 5
AS_IT_IS, MENDED, RECORDS, WRAPPER, PAYLOAD = range(MODES)
_MOST = 1 << 11  # bytes of an input
_LIMIT = 1 << 16  # bytes that a payload may expand to
# libFuzzer's own limits fail by chance: its time is wall-clock time, and its memory (exit code 71) begins
# with the peak of the process that started this one. The watchdog and a limit on the address space take their
# place. To atheris a timeout of 0 is no time at all: an input that took a second on a busy machine failed.
_NO_LIMITS = ("-timeout=1000000", "-rss_limit_mb=0")


def mended(data: bytes) -> bytes:
    """The segment with the checksum of each batch made right, as far as lengths lead."""
    out, at = bytearray(data), 0
    while size := batch_size(bytes(out), at):
        end = at + size
        if out[at + 16] == 2:
            struct.pack_into(">I", out, at + 17, crc32c.crc32c(bytes(out[at + 21 : end])))
        else:
            struct.pack_into(">I", out, at + 12, zlib.crc32(bytes(out[at + 16 : end])))
        at = end
    return bytes(out)


def segment_of(data: bytes) -> bytes:
    """The segment that an input stands for."""
    mode, rest = data[0] % MODES, data[1:]
    if mode == MENDED:
        return mended(rest)
    if mode == RECORDS:
        return Batch(payload=rest[2:], count=rest[0] % 32, flags=rest[1], last_offset_delta=31).encode()
    if mode == WRAPPER:
        magic = rest[0] & 1
        inner = mended(rest[2:])
        return wrap([], codec=SNAPPY, magic=magic, inner=inner, outer_offset=rest[1], style="raw").encode()
    if mode == PAYLOAD:
        codec, magic = _codec_of(rest[0])
        if magic == 2:
            return Batch(codec=codec, stored=rest[1:], count=1).encode()
        return Message(magic=magic, attributes=codec, value=rest[1:]).encode()
    return rest


def _codec_of(byte: int) -> tuple[int, int]:
    """(codec, magic) that a byte stands for: zstd under magic 2 alone."""
    codec = 1 + byte % 4
    return codec, 2 if codec == 4 else byte // 4 % 3


def check_payload(rest: bytes) -> None:
    """The plain decoder's expansion is the reference codecs', or both refuse."""
    codec, magic = _codec_of(rest[0])
    codecs = plain.load()["codecs"]
    scratch = codecs.Scratch()
    made = codecs.expand(codec, magic, np.frombuffer(rest[1:], dtype=np.uint8), scratch, _LIMIT)
    try:
        want = reference_codecs.decompress(codec, rest[1:], _LIMIT, magic=magic)
    except (reference_codecs.BadPayloadError, reference_codecs.TooLargeError):
        assert made < 0, "expanded what the reference refuses"
        return
    assert made >= 0, "refused what the reference expands"
    assert scratch.data[:made].tobytes() == want, "expanded to other bytes"


def check(data: bytes) -> None:
    """All rules for one input."""
    if len(data) < 4:
        return
    if data[0] % MODES == PAYLOAD:
        check_payload(data[1:])
        return
    segment = segment_of(data)
    with np.errstate(all="ignore"):
        decoder = plain.decoder(BytesSource(segment), max(1, min(len(segment), 4096)), _LIMIT, len(segment))
        found = checks.outcome(decoder)
    checks.check_bytes(found, len(segment))
    checks.check_columns(found)
    checks.check_reference(found, segment, _LIMIT)


def first_inputs() -> list[bytes]:
    """Seeds in each mode."""
    found = [bytes([MENDED]) + batch for batch in seeds.stored()]
    for batch in seeds.opened():
        if batch[16] == 2:
            found.append(bytes([RECORDS, batch[60], batch[22] & 0x38]) + batch[61:])
        elif batch[17] & 7:
            at = 30 if batch[16] == 1 else 22
            found.append(bytes([WRAPPER, batch[16], batch[7]]) + batch[at + 4 :])
    for batch in seeds.stored():
        codec = batch[22] & 7
        if batch[16] == 2 and 0 < codec < 5:
            found.append(bytes([PAYLOAD, codec - 1 + 8]) + batch[61:])
    return [data[:_MOST] for data in found]


def _write_seeds(folder: Path) -> None:
    for place, data in enumerate(first_inputs()):
        (folder / f"{place:04d}").write_bytes(data)


def _target(child: Child) -> Any:
    def target(data: bytes) -> None:
        if not data:
            return
        child.take(data)
        try:
            check(data)
        except Exception as error:
            segment = segment_of(data) if len(data) > 3 else data
            child.keep(segment, rule_of(error), traceback.format_exc())

    return target


def main() -> None:
    import atheris

    child, options = read_arguments()
    with atheris.instrument_imports(include=["kafka_log_lake"]):
        plain.load()
    check(first_inputs()[0])
    child.begin()
    with tempfile.TemporaryDirectory() as folder:
        _write_seeds(Path(folder))
        limit = f"-runs={options.count}" if options.count else f"-max_total_time={int(options.seconds)}"
        arguments = [limit, f"-seed={options.seed % (1 << 31) or 1}", f"-max_len={_MOST}", *_NO_LIMITS]
        atheris.Setup([sys.argv[0], *arguments, "-artifact_prefix=" + folder + "/", folder], _target(child))
        atheris.Fuzz()


if __name__ == "__main__":
    main()
