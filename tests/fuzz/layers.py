"""What runs in the child process, a layer at a time: ``python -m tests.fuzz.layers LAYER FOLDER SEED ...``.

The child writes its counts and the input it works on into files that it maps, so that the watchdog reads them
when it crashes or hangs. What breaks a rule it writes down itself, and goes on.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import time
import traceback
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from kafka_log_lake.udfs.kernels import arena
from kafka_log_lake.udfs.kernels.framing import BATCH
from kafka_log_lake.udfs.kernels.record_builder import Data, RecordBuilder
from kafka_log_lake.udfs.kernels.record_cursor import CURSOR, FILLED, new_lines
from tests.fuzz import checks, compared, costs, kernels, mutate, payloads, seeds
from tests.fuzz.guarded import Guarded, GuardedDecoder
from tests.fuzz.kernels import BEGIN, COMPARED, INPUTS, PEAK, RECORDS, SIZE, SOUND, WITH_RECORDS
from tests.fuzz.segments import Maker

_BLOCK = 256  # inputs of a compiled loop
_ADDRESS_SPACE = 1 << 30  # bytes that all inputs together may add to the process
_MOST_FINDINGS = 20
_PASSES = 6  # over a past finding, each with a separate window


@dataclass
class Child:
    """What a layer works with: shared numbers, a shared input, where findings go."""

    folder: Path
    findings: Path
    layer: str
    seconds: float
    count: int
    kept: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shared = Guarded(8 * kernels.NUMBERS, self.folder / "numbers")
        self.numbers = shared.data[: 8 * kernels.NUMBERS].view(np.int64)
        self.input = Guarded(2 * costs.LARGE, self.folder / "input")
        self._end = 0.0

    def begin(self, *, bounded: bool = True) -> None:
        """Everything is compiled: from now on time counts, and memory where it is ``bounded``."""
        if bounded:
            here = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (here + _ADDRESS_SPACE,) * 2)
        self._end = time.monotonic() + self.seconds
        self.numbers[:] = 0

    def goes_on(self) -> bool:
        """Whether inputs and time are left."""
        if self.count:
            return bool(self.numbers[INPUTS] < self.count) and len(self.kept) < _MOST_FINDINGS
        return time.monotonic() < self._end and len(self.kept) < _MOST_FINDINGS

    def take(self, data: bytes) -> None:
        """Show the watchdog what is worked on."""
        self.input.data[: len(data)] = np.frombuffer(data, dtype=np.uint8)
        self.numbers[SIZE] = len(data)
        self.numbers[BEGIN] = 0
        self.numbers[INPUTS] += 1

    def keep(self, data: bytes, rule: str, printed: str) -> None:
        """Write a finding down, one for each rule that was broken."""
        if rule in self.kept:
            return
        name = f"{self.layer}-{hashlib.sha256(data).hexdigest()[:10]}"
        self.kept[rule] = name
        (self.findings / f"{name}.log").write_bytes(data)
        (self.findings / f"{name}.txt").write_text(f"{rule}\n\n{printed}")
        (self.folder / "kept.json").write_text(json.dumps(self.kept))


def guard_arena(guarded: Guarded) -> list[int]:
    """Columns are written into memory that ends at a guard page; the list counts how often.

    One arena at a time: the caller has done with the columns before it asks for the next ones.
    """
    allocate, used = pa.allocate_buffer, [0]

    def allocate_guarded(size: int, *rest: Any, **options: Any) -> pa.Buffer:
        if not 0 < size <= len(guarded.data):
            return allocate(size, *rest, **options)
        used[0] += 1
        return pa.py_buffer(guarded.at_end(size))

    pa.allocate_buffer = allocate_guarded
    return used


def kernels_layer(child: Child, seed: int) -> None:
    """The kernels in a compiled loop; the last input of each block is made into arrays too."""
    packed, starts = seeds.packed(seeds.opened())
    window, expanded, memory = child.input, Guarded(1 << 16), Guarded(1 << 21)
    batches, work = np.zeros(64, dtype=BATCH), np.zeros(mutate.ROOM, dtype=np.uint8)
    state = np.array([seed], dtype=np.uint64)
    cursor, both = np.zeros(1, dtype=CURSOR), np.zeros(3, dtype=FILLED)
    room, at = np.zeros(1, dtype=arena.ROOM), np.zeros(arena.PARTS + 1, dtype=np.int64)
    columns = (memory.data, new_lines(mutate.MOST), arena.part_sizes(set(range(arena.PARTS))))
    guard_arena(Guarded(1 << 22))
    place = (packed, starts, window.data, expanded.data, batches, *columns, cursor, both, room, at)
    shared = (state, child.numbers, work)
    kernels.run(*place, *shared, 1)
    child.begin()
    while child.goes_on():
        made = kernels.run(*place, *shared, _BLOCK)
        begin, size = int(child.numbers[BEGIN]), int(child.numbers[SIZE])
        data = window.data[begin : begin + size]
        if child.numbers[kernels.BROKEN]:
            rule = kernels.BROKEN_RULES[child.numbers[kernels.BROKEN]]
            child.numbers[kernels.BROKEN] = 0
            child.keep(data.tobytes(), rule, "in the compiled loop")
        elif made > 0:
            last = int(child.numbers[kernels.LAST])
            _, built = RecordBuilder(None).group(Data(data, expanded.data), batches[last : last + 1])
            assert built.records is not None
            built.records.validate(full=True)


def segments_layer(child: Child, seed: int) -> None:
    """Whole segments, changed, through the whole decoder."""
    maker = Maker(seed)
    examine = examiner(child)
    for warm in seeds.stored():
        examine(warm, maker, 0)
    child.begin()
    while child.goes_on():
        data = maker.segment()
        child.take(data)
        try:
            examine(data, maker, int(child.numbers[INPUTS]))
        except Exception as error:
            child.keep(data, rule_of(error), traceback.format_exc())


def rule_of(error: Exception) -> str:
    """The kind of an error and the line it came from: findings of one kind are kept once."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {place.name}, line {place.lineno} of {Path(place.filename).name}"


def examiner(child: Child) -> Callable[[bytes, Maker, int], None]:
    """The check of one segment: all rules for every eighth input, those on bytes for every one."""
    windows, expanded = Guarded(1 << 16), Guarded(checks.LIMIT)
    arenas = guard_arena(Guarded(1 << 22))
    counts = child.numbers

    def examine(data: bytes, maker: Maker, number: int) -> None:
        window = (len(data), len(data), 64, 100, 333)[maker.number(5)]
        has_successor = maker.number(4) == 0
        decoder = GuardedDecoder.over(
            data, checks.LIMIT, window, windows, expanded, has_successor=has_successor
        )
        found = checks.Outcome(decoder.totals)
        thorough = number % 8 == 0
        for group in decoder:
            found.batches.append(group.batches.copy())
            found.damages += group.damages
            if group.records is not None and thorough:  # the next ones lie in the same memory
                found.records.append(checks.own(group.records))
        checks.check_bytes(found, len(data))
        counts[SOUND] += found.totals.batches - found.totals.damaged
        counts[RECORDS] += found.totals.records
        assert arenas[0] or not found.totals.records, "columns outside the guarded arena"
        counts[WITH_RECORDS] += found.totals.records > 0
        if number % 16 == 1:
            start = maker.number(len(data))
            checks.check_slice(data, start, start + maker.number(len(data)), window)
        if thorough:
            checks.check_columns(found)
            counts[COMPARED] += checks.check_reference(found, data)

    return examine


def findings_layer(child: Child, seed: int, files: Collection[Path]) -> None:
    """Past findings and other given files: every rule, through every window; of costly ones, the cost."""
    columns = sorted(filter(payloads.is_payloads, files))
    for path in columns:  # they read segments of their own, which guarded memory does not hold
        child.take(path.read_bytes())
        _examine_payloads(child, path.read_bytes(), f"{path.name}: ")
    examine, maker = examiner(child), Maker(seed)
    for path in sorted(set(files).difference(columns)):
        data = path.read_bytes()
        if costs.is_costly(path):
            child.take(data)
            for rule, printed in costs.broken_alone(data).items():
                child.keep(data, f"{path.name}: {rule}", printed)
            continue
        for _ in range(_PASSES):
            child.take(data)
            try:
                examine(data, maker, 0)
            except Exception as error:
                child.keep(data, f"{path.name}: {rule_of(error)}", traceback.format_exc())


def payloads_layer(child: Child, seed: int) -> None:
    """Columns of keys and values of the registry's corpus, changed."""
    made = payloads.columns(seed)
    for _ in range(200):  # loads schemas and kernels
        _examine_payloads(child, next(made))
    child.begin()
    while child.goes_on():
        data = next(made)
        child.take(data)
        _examine_payloads(child, data)
        child.numbers[INPUTS] += payloads.ROWS - 1


def _examine_payloads(child: Child, data: bytes, name: str = "") -> None:
    def count(decoded: int) -> None:
        child.numbers[SOUND] += decoded

    try:
        payloads.examine(data, count)
    except Exception as error:
        child.keep(data, name + rule_of(error), traceback.format_exc())


def costs_layer(child: Child, seed: int) -> None:
    """Inputs made to be costly, held to what they may cost."""
    costs.prepare()
    search = costs.Search(seed)
    child.begin()
    while child.goes_on():
        try:
            for found in search.examine(search.recipe(), child.take):
                child.keep(found.data, found.rule, found.printed)
        except Exception as error:
            begin, size = int(child.numbers[BEGIN]), int(child.numbers[SIZE])
            data = child.input.data[begin : begin + size].tobytes()
            child.keep(data, rule_of(error), traceback.format_exc())


def hypothesis_layer(child: Child, seed: int) -> None:
    """Compiled equals plain, over what Hypothesis draws and over changed segments."""
    compared.check_plain(seeds.stored()[0])
    child.begin()
    while child.goes_on():
        data = compared.drawn_difference(seed, min(child.count or 200, 200), child.take)
        if data is not None:
            child.keep(data, f"compiled and plain differ, seed {seed}", "")
        seed += 1


def kafka_layer(child: Child, seed: int) -> None:
    """Changed batches, judged by Kafka's own library, many in one run of it."""
    child.begin(bounded=False)  # a limit on memory would be one on Java too
    while child.goes_on():
        verdicts, differing = compared.kafka_round(seed, min(child.count or 5000, 5000))
        child.numbers[INPUTS] += sum(verdicts.values()) + len(differing)
        child.numbers[SOUND] += verdicts["read"]
        child.numbers[COMPARED] += sum(verdicts.values()) - verdicts["unframed"]
        for data, printed in differing:
            child.keep(data, f"Kafka differs: {printed[:200]}", printed)
        seed += 1


LAYERS: dict[str, Callable[[Child, int], None]] = {
    "kernels": kernels_layer,
    "segments": segments_layer,
    "costs": costs_layer,
    "payloads": payloads_layer,
    "hypothesis": hypothesis_layer,
    "kafka": kafka_layer,
}


def read_arguments() -> tuple[Child, argparse.Namespace]:
    """What the watchdog gives a child."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("layer")
    parser.add_argument("folder", type=Path, help="of the files shared with the watchdog")
    parser.add_argument("findings", type=Path, help="folder of what breaks a rule")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--files", type=Path, nargs="*", default=[])
    options = parser.parse_args()
    return Child(options.folder, options.findings, options.layer, options.seconds, options.count), options


def main() -> None:
    child, options = read_arguments()
    if options.layer in LAYERS:
        LAYERS[options.layer](child, options.seed)
    elif options.layer == "findings":
        findings_layer(child, options.seed, options.files)
    else:
        _misbehave(child, options.layer)
    child.numbers[PEAK] = _peak_kb()


def _peak_kb() -> int:
    """Of this process alone: getrusage begins with the peak of the one that started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def _misbehave(child: Child, how: str) -> None:
    """What the watchdog has to see, for the tests of the watchdog: a read past a guard page, a hang."""
    child.begin()
    child.take(how.encode())
    if how == "crash":
        beyond = np.lib.stride_tricks.as_strided(child.input.data, (len(child.input.data) + 1,), (1,))
        print(int(beyond[-1]))
    while True:
        pass


if __name__ == "__main__":
    main()
