"""What each command prints, whole, in one file a command: ``tests/data/texts/<command>.txt``.

``make texts`` writes the files, so that a better word is a line in a diff. They have each command's
``--help`` and ``--help-all``, which also pins its options: name, placeholder, choices (the first is the
default) and default. No other test does it.
"""

from __future__ import annotations

import io
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_log_lake.pipelines.cli import status
from kafka_log_lake.pipelines.cli.commands import COMMANDS
from kafka_log_lake.pipelines.cli.declaration import Command
from kafka_log_lake.pipelines.cli.program import main
from kafka_log_lake.pipelines.cli.setting_names import RARE
from kafka_log_lake.pipelines.query import command as query
from tests.support import corpus, typed_corpus

TEXTS = Path(__file__).parents[1] / "data" / "texts"
PROGRAM = "kafka-log-lake"
SEGMENT = "00000000000000000000.log"

# Small logs of times long ago: what retention frees does not change from day to day
LOGS = (
    *(corpus.ROOT / "v1-codec-gzip/v1-gzip-0", corpus.ROOT / "v2-headers/headers.v1-0"),
    *(corpus.ROOT / "hostile/bitflip-crc-v2-none-0", corpus.ROOT / "mixed-magic/mixed.magic-0"),
)
TYPED = tuple(typed_corpus.DATA / name for name in ("_schemas-0", "avro-bare-0", "err-avro-0"))
# Of the log of v2-headers on the disks of two brokers: the bytes that are flipped, and where the file ends
DISKS = {"b1": ((13_000, 16_600), None), "b2": ((16_600,), 16_959)}

# A line is an argv; the text after < is its standard input. Each command begins with the lake of LOGS and
# TYPED, but for those that make one
RUNS = {
    "": ("", "scna", "scan --tpoics x"),
    "scan": ("scan logs", "scan logs --topics mixed.magic", "scan none"),
    "find": (
        "find logs --key key-o-13",
        "find logs --topics v1-gzip --limit 3",
        "find logs --text nobody",
        "find logs --topics headers.v1 --limit 2 --count",
        "find logs --topics headers.v1 --limit 1 --format json",
        "find --lake lake --topics headers.v1 --offset 2",
    ),
    "inspect": (
        f"inspect logs/bitflip-crc-v2-none-0/{SEGMENT} --records 1",
        f"inspect logs/v1-gzip-0/{SEGMENT} --records 1",
        f"inspect logs/v1-gzip-0/{SEGMENT} --position 7",
    ),
    "load-check": ("load-check logs", "load-check none"),
    "dump": (
        f"dump logs/headers.v1-0/{SEGMENT}",
        f"dump --print-data-log logs/mixed.magic-0/{SEGMENT} --max-bytes 1300",
        f"dump --more logs/bitflip-crc-v2-none-0/{SEGMENT}",
    ),
    "decode": (
        "decode --source logs --lake lake",
        "decode --source logs --lake lake --fail-on-damage",
        "decode --source logs --lake other --topics mixed.magic --offsets 3:5",
        "decode --source typed --lake typed-lake",
        "decode --print-config",
    ),
    "ingest": (
        "ingest --source logs --lake lake",
        "ingest --source logs --lake lake",
        "ingest --print-config",
    ),
    "query": (
        'query --lake lake "SELECT topic, partitions, records, damaged_ranges FROM topics ORDER BY ALL"',
        'query --lake lake --format csv "SELECT magic, count(*) AS n FROM batches GROUP BY ALL ORDER BY ALL"',
        'query --lake lake "DELETE FROM batches"',
        'query --lake none "SELECT 1"',
    ),
    "export": (
        "export --lake lake --topic headers.v1 --output headers.csv --overwrite",
        "export --lake lake --topic header",
    ),
    "sql": (
        "sql --lake lake < help\nSELECT count(*) AS batches\nFROM batches; SELECT nothing;\nSELECT 1 AS one",
    ),
    "maintain": ("maintain --lake lake", "maintain --lake none"),
    "decode-values": ("decode-values --lake lake", "decode-values --lake lake", "decode-values --lake none"),
    "recover": (
        "recover --source b1=b1 --source b2=b2 --lake healed --report report",
        "recover --lake healed",
    ),
    "restore": (
        "restore --lake lake --topics headers.v1|v1-gzip --dry-run",
        "restore --lake lake",
        "restore --lake none --dry-run",
    ),
    "quality-report": ("quality-report --lake lake --output report", "quality-report --lake none"),
    "mcp": ("mcp", "mcp logs --http 0"),
    "format-report": (
        "format-report --lake lake --topics 'headers.v1|v1-gzip' --codec-levels zstd:3",
        "format-report --lake none",
    ),
}
MAKES_A_LAKE = ("decode", "ingest", "recover")


def stable(text: str, folder: Path) -> str:
    """Returns the text with a placeholder for what differs between machines and between runs."""
    size = r"[\d.,]+ [kMGT]?B"
    for pattern, placeholder in (
        (r"(?m)^compiling the decoder.*\n", ""),
        (re.escape(str(folder)), "/FOLDER"),
        (r"(?m)^  segment {3,}", "  segment  "),  # over a column of paths
        (rf"{size}/s", "N B/s"),
        (r"\b(in|for) [\d.]+ (ms|s)\b", r"\1 N s"),
        (rf"\({size} of {size} free at", "(N B of N B free at"),
        (r"(?m)\([\d.]+ s\)$", "(N s)"),
        (r"\brun [0-9a-f]{32}\b", "run RUN"),
        (rf"(?m)^(  \w+ +\d+ +\d+) +{size} +(\d+)$", r"\1  N B  \2"),  # maintain: Parquet files
        (r"files before  files +bytes", "files before  files  bytes"),
    ):
        text = re.sub(pattern, placeholder, text)
    return text


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Makes the working folder of all runs: logs/, the disks b1/ and b2/, and of-all/, a lake to copy."""
    made = tmp_path_factory.mktemp("texts")
    for log in LOGS:
        shutil.copytree(log, made / "logs" / log.name)
    for log in TYPED:
        shutil.copytree(log, made / "typed" / log.name)
    for disk, (flipped, end) in DISKS.items():
        content = bytearray((corpus.ROOT / "v2-headers/headers.v1-0" / SEGMENT).read_bytes()[:end])
        for position in flipped:
            content[position] ^= 1
        (made / disk / "headers.v1-0").mkdir(parents=True)
        (made / disk / "headers.v1-0" / SEGMENT).write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made)
        patch.setenv("COLUMNS", "80")
        # How the command is called from here: by its name alone
        patch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
        patch.setattr(status, "_FIRST_AFTER", 3600.0)  # no line that says how far it is
        # As in a process of its own: another test may have a session of Spark in this one
        patch.setattr(query, "_is_elsewhere", lambda: False)
        sources = ["--source", "logs", "--source", "typed"]
        assert main(["decode", *sources, "--lake", "of-all", "--no-typed"]) == 0
        yield made


def printed(line: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Returns a command's line, its output, its errors after ``2>``, and the exit code if it is not 0."""
    argv, _, given = line.partition(" < ")
    capsys.readouterr()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.StringIO(given))
        try:
            code: object = main(shlex.split(argv))
        except SystemExit as ended:  # after --help
            code = ended.code
    output, errors = capsys.readouterr()
    shown = [f"$ {PROGRAM} {argv}".rstrip() + (f" <<END\n{given}\nEND" if given else "")]
    shown += [output.rstrip("\n"), *(f"2> {error}" for error in errors.splitlines())]
    return "\n".join([*filter(None, shown), *([f"exit code {code}"] if code else [])])


def argv_of_helps(command: Command) -> list[str]:
    """Returns the lines that print a command's help, all options in the last."""
    more = [f"{command.name} --help-all"] if RARE & {*command.settings} else []
    return [f"{command.name} --help", *more]


@pytest.mark.parametrize("name", RUNS)
def test_printed_texts_are_those_of_the_file(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str], pytestconfig: pytest.Config
) -> None:
    for made in ("lake", "other", "healed", "report", "typed-lake"):
        shutil.rmtree(folder / made, ignore_errors=True)
    if name not in MAKES_A_LAKE:
        shutil.copytree(folder / "of-all", folder / "lake")
    lines = [
        *RUNS[name],
        *(line for command in COMMANDS if command.name == name for line in argv_of_helps(command)),
    ]
    text = stable("\n\n".join(printed(line, capsys) for line in lines) + "\n", folder)
    file = TEXTS / f"{name or PROGRAM}.txt"
    if pytestconfig.getoption("write_texts"):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8"), "if it is meant: make texts"


def test_each_command_has_a_file() -> None:
    names = {"", *(command.name for command in COMMANDS)}
    assert set(RUNS) == names
    assert {file.name for file in TEXTS.iterdir()} == {f"{name or PROGRAM}.txt" for name in names}
