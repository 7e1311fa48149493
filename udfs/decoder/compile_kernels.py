"""Compiles the kernels before they are needed, in parallel, once for each user and processor.

Numba compiles a kernel at its first call, one at a time in a process: half a minute of one core for all, in
each of the processes that start together. ``ensure_compiled`` does it in two processes instead, while the
others wait, and says so on standard error. ``make setup`` does the same beforehand
(``python -m kafka_log_lake.udfs.decoder.compile_kernels``), and the wheel brings them for most processors.
The machine code is copied to the user's own cache, and from there to the next environment of the same user.
Where no folder can keep them (``udfs.kernels.machine_code``), each process compiles what it calls.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import numpy as np
import pyarrow as pa

from kafka_log_lake.udfs.decoder.decoded import Range
from kafka_log_lake.udfs.kernels import machine_code
from kafka_log_lake.udfs.storage.byte_source import FileSource

_IN_EACH = "compiling the decoder, about half a minute in each process"
MARK, _LOCK = "complete", "lock"
_EVERY = 10.0  # seconds between two lines of progress; on a terminal one line is rewritten
# One V2 batch of one record: null key, value "x"
_BATCH = bytes.fromhex(
    "000000000000000000000039000000000227293eff0000000000000000018bcfe568000000018bcfe56800"
    "ffffffffffffffffffffffffffff000000010e00000001027800"
)
_done = False


def ensure_compiled() -> None:
    """Waits until all kernels are compiled; returns at once where they are, or where the wheel brings them.

    Kernels that check bounds are for tests: each is compiled where a test calls it.
    """
    global _done
    if _done or not machine_code.COMPILES or machine_code.CHECKS_BOUNDS:
        return
    _done = True
    if machine_code.is_brought():
        return
    if not machine_code.CACHE:
        _say(f"{_IN_EACH}: no folder can keep it; NUMBA_CACHE_DIR names one")
        return
    folder = Path(machine_code.CACHE)
    if _mark(folder).exists():
        return
    try:
        with (folder / _LOCK).open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be at it
            if not _mark(folder).exists():
                _fill(folder)
                _mark(folder).touch()
    except (OSError, subprocess.SubprocessError) as error:
        _say(f"{_IN_EACH}: {error}")


def _mark(folder: Path) -> Path:
    """Returns the file that says that all kernels are there for this CPU."""
    return folder / f"{MARK}-{machine_code.cpu_name()}"


def _fill(folder: Path) -> None:
    """Copies the kernels that another environment of this user compiled, else compiles them for both."""
    shared = machine_code.shared_folder()
    if shared is not None and _mark(shared).exists():
        _copy(shared, folder)
        return
    _compile(folder)
    if shared is not None:
        with suppress(OSError):  # the other environment compiles them itself
            _copy(folder, shared)
            _mark(shared).touch()


def _copy(folder: Path, into: Path) -> None:
    for file in folder.glob("*.o"):
        shutil.copyfile(file, into / file.name)


def _compile(folder: Path) -> None:
    """Compiles all kernels in separate processes.

    Raises an OSError or CalledProcessError where none can run.
    """
    began = time.monotonic()
    _say("compiling the decoder for this computer, once: half a minute on two idle cores")
    for parts in (("records", "batches"), ("rest", "values")):
        running = [_start(part) for part in parts]
        try:
            _wait(running, folder, began)
        finally:
            for process in running:
                process.kill()
                process.wait()
        for process in running:
            if process.returncode:
                raise subprocess.CalledProcessError(process.returncode, process.args)
    _say(f"compiled the decoder in {time.monotonic() - began:.0f} s")


def _start(part: str) -> subprocess.Popen[bytes]:
    path = os.pathsep.join(each or os.getcwd() for each in sys.path)
    code = f"from kafka_log_lake.udfs.decoder import compile_kernels; compile_kernels.compile_part({part!r})"
    command = [sys.executable, "-P", "-c", code]
    return subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": path}, stdin=subprocess.DEVNULL, stdout=2
    )


def _wait(running: list[subprocess.Popen[bytes]], folder: Path, began: float) -> None:
    is_terminal = sys.stderr.isatty()
    following = time.monotonic() + (0 if is_terminal else _EVERY)
    while any(process.poll() is None for process in running):
        time.sleep(0.05)
        if time.monotonic() >= following:
            kernels = sum(1 for _ in folder.glob("*.nbi"))
            _say(f"compiling the decoder: {kernels} kernels, {time.monotonic() - began:.0f} s", is_terminal)
            following += 0.25 if is_terminal else _EVERY
    if is_terminal:
        _say("", rewritten=True)


def _say(text: str, rewritten: bool = False) -> None:
    begin, end = ("\r\x1b[K", "") if rewritten else ("", "\n")
    print(f"{begin}{text}", end=end, file=sys.stderr, flush=True)


def _records() -> None:
    """Compiles the kernels that make columns of records, but those of ``_batches``."""
    from kafka_log_lake.udfs.kernels import arena, record_batches
    from kafka_log_lake.udfs.kernels.default_record import decode_records
    from kafka_log_lake.udfs.kernels.framing import BATCH
    from kafka_log_lake.udfs.kernels.legacy_record import decode_wrapper
    from kafka_log_lake.udfs.kernels.record_columns import NO_ARENA
    from kafka_log_lake.udfs.kernels.record_cursor import CURSOR, FILLED, new_lines

    data, batches, lines = np.zeros(0, dtype=np.uint8), np.zeros(1, dtype=BATCH), new_lines(0)
    cursor, filled, room = np.zeros(1, CURSOR), np.zeros(2, FILLED), np.zeros(1, arena.ROOM)
    columns = arena.text_columns.py_func(NO_ARENA.at)
    for decode in (decode_records, decode_wrapper):
        decode(data, batches[0], NO_ARENA.parts, columns, lines, cursor[0], filled[0], room[0])
    places = NO_ARENA.parts, NO_ARENA.at
    record_batches.decode_batches(data, data, batches[:0], *places, lines, cursor, filled, room)


def _batches() -> None:
    """Compiles the kernels that find, check and expand batches, and those that fill columns of numbers."""
    from kafka_log_lake.udfs.kernels.fast_payloads import PROGRESS, expand_regular
    from kafka_log_lake.udfs.kernels.framing import BATCH, scan_batches
    from kafka_log_lake.udfs.kernels.libraries import contexts
    from kafka_log_lake.udfs.kernels.number_columns import fill_numbers
    from kafka_log_lake.udfs.kernels.record_columns import NO_ARENA
    from kafka_log_lake.udfs.kernels.record_cursor import FILLED, new_lines

    data, batches, codec_contexts = np.zeros(0, dtype=np.uint8), np.zeros(1, dtype=BATCH), contexts()
    fill_numbers(batches[:0], new_lines(0), NO_ARENA.parts, NO_ARENA.at, np.zeros(1, FILLED)[0])
    scan_batches(data, 0, 0, 0, -1, batches)
    expand_regular(
        data, batches[:0], data, np.zeros(1, PROGRESS), codec_contexts.zstd, codec_contexts.inflate
    )


def _rest() -> None:
    """Decodes a sound batch, damage between two, a slice that begins within one; searches and prints them."""
    decoder = import_module("kafka_log_lake.udfs.decoder.segment_decoder")  # which imports this module
    content = _BATCH + bytes(range(1, 100)) + _BATCH + _BATCH[:-1] + b"\1" + _BATCH
    with tempfile.NamedTemporaryFile(suffix=".log") as file:
        file.write(content)
        file.flush()
        for part in (Range(len(content)), Range(len(content), start=1, exact=False)):
            source = FileSource(file.name)
            for _ in decoder.SegmentDecoder(source, part):
                pass
            source.close()
        source = FileSource(file.name)
        import_module("kafka_log_lake.udfs.decoder.resync").Resynchronizer(
            source, 0, len(content), None
        ).headers.is_sound(len(_BATCH) + 99)
        source.close()
        import_module("kafka_log_lake.udfs.decoder.range_checksums").without(0, 0, 1, True)
        text = import_module("kafka_log_lake.pipelines.dump_log.log_text")
        source = FileSource(file.name)
        for _ in text.LogText(source, len(_BATCH), text.Prints(records=True, contents=True)):
            pass
        source.close()
        search = import_module("kafka_log_lake.pipelines.find.segment_search")
        key = import_module("kafka_log_lake.pipelines.find.conditions").OneOf("key", pa.array([b"x"]))
        source = FileSource(file.name)
        for _ in search.SegmentSearch(source, Range(len(_BATCH)), search.Criteria((key,)), search.COLUMNS):
            pass
        source.close()


def _values() -> None:
    """Compiles the kernels that decode keys and values: Avro, Protobuf, JSON."""
    from kafka_log_lake.udfs.kernels import protobuf

    heads, json_arrays = (
        import_module("kafka_log_lake.udfs.values.schemas.payload_heads"),
        import_module("kafka_log_lake.udfs.values.json.arrays"),
    )
    avro, schema = (
        import_module("kafka_log_lake.udfs.values.avro.columns"),
        import_module("kafka_log_lake.udfs.values.avro.schema"),
    )
    payloads = pa.array([b"\0\0\0\0\1"])
    heads.confluent_ids(payloads)
    heads.looks(payloads, np.zeros(1, np.int64))
    json_arrays.texts(payloads, False)
    names = ("text", '"string"'), ("price", '{"type": "bytes", "logicalType": "decimal", "precision": 4}')
    fields = ", ".join(f'{{"name": "{name}", "type": {type_}}}' for name, type_ in names)
    record = schema.parse(f'{{"type": "record", "name": "all", "fields": [{fields}]}}')
    avro.AvroColumns(record).decode(payloads, np.zeros(1, np.int64))
    data = np.frombuffer(payloads.buffers()[2], np.uint8)
    numbers, table = np.zeros(0, np.int64), np.zeros((1, 1), np.int64)
    program = protobuf.Program(table, table, table, table, numbers)
    rows = protobuf.FilledRows(*[numbers] * 6)
    protobuf.decode_messages(program, data, numbers, numbers, 0, rows, table, np.zeros(0, np.bool_))
    protobuf.hashes(data, numbers, numbers)


_PARTS: dict[str, Callable[[], None]] = {
    "records": _records,
    "batches": _batches,
    "rest": _rest,
    "values": _values,
}


def compile_part(name: str) -> None:
    """Compiles one part of the kernels in this process, which does not wait for others."""
    global _done
    _done = True
    _PARTS[name]()


if __name__ == "__main__":
    ensure_compiled()
