"""Hostile names and values through every writer of text for other programs: nothing in them may act.

``python -m tests.fuzz.written [--cases N] [--seed N]``. Scripts are run by a real shell with tools that note
their words, in a folder where a command of a name would leave a file. Pages are parsed, and tables read back.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import random
import re
import secrets
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import yaml

from kafka_log_lake.pipelines.cli import pages
from kafka_log_lake.pipelines.cli.generated import command_line, comment, csv_cell, html_text, shell_word
from kafka_log_lake.pipelines.cli.values import is_topic_name
from kafka_log_lake.pipelines.listing.cluster_state import ClusterState, Partition
from kafka_log_lake.pipelines.recover import page, state_files
from kafka_log_lake.pipelines.recover.restore import Policy, count_losses, register_topics, write_restore
from kafka_log_lake.pipelines.sql.rows import ResultColumn, csv_lines
from kafka_log_lake.udfs.format.recovery_tables import LOST_RECORDS
from kafka_log_lake.udfs.values.internal.topics import TOPICS

CANARY = "ran"
_PARTS = (
    *("\n", "\r", "\r\n", "\0", "\t", "\x1b[2J", "\x1b]0;x\x07", "\x03", "\x04", "\x7f", "\x9b2J", "\u2028"),
    *("\u202e", "\u2066", "\u200b", "'", '"', "`", "\\", "$(touch ran)", "`touch ran`", ";touch ran;"),
    *("|touch ran", "&touch ran&", ">ran", "\ntouch ran\n", "';touch ran;'", '";touch ran;"', "${IFS}"),
    *("#", "!!", "*", "?", "~", "{a,b}", "[a]", "--delete", "-", "=", "+", "@", "=1+1", "=cmd|' /C x'!A0"),
    *("<script>touch()</script>", "<img src=x onerror=a>", "-->", "]]>", "<!--rows-->", "&lt;", "{{ 1 }}"),
    *(
        "a",
        "orders",
        "ö",
        "日本",
        "🎈",
        " ",
        ".",
        ":",
        ",",
        ": ",
        "- ",
        "%s",
        "EOF\n",
        "null",
        "1e3",
        "x" * 300,
    ),
)
_TOOL = f"""#!/bin/sh
printf '%s\\0' "${{0##*/}}" "$@" >> "$NOTES"; printf '\\1' >> "$NOTES"
case "$*" in -c*) ;; *) cat > {os.devnull} ;; esac
"""
_TOOLS = (
    "kafka-topics.sh",
    "kafka-configs.sh",
    "kafka-acls.sh",
    "kafka-console-producer.sh",
    "python3",
    "note",
)


def name(pick: random.Random) -> str:
    """A name that somebody made to do harm; sometimes a legal one, rarely a very long one."""
    if pick.random() < 0.15:
        return pick.choice(("orders", "-x", "--delete", "a.b_c-1", "0", "x" * 249))
    some = "".join(pick.choices(_PARTS, k=pick.randint(1, 5)))
    return some * 400 if pick.random() < 0.01 else some


class Sandbox:
    """A folder with tools that note their words, and a shell that finds them first."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._bin, self._notes = folder / "work", folder / "bin", folder / "notes"
        self.folder.mkdir(parents=True)
        self._bin.mkdir()
        for tool in _TOOLS:
            (self._bin / tool).write_text(_TOOL)
            (self._bin / tool).chmod(0o755)

    def run(self, script: Path, shell: str) -> list[list[str]]:
        """The words of each tool that a script called. It must end well, and leave nothing."""
        before = sorted(self.folder.rglob("*"))
        self._notes.write_bytes(b"")
        path = f"{self._bin}:/usr/bin:/bin"
        done = subprocess.run(
            [shell, str(script), "HOST:1"],
            env={"PATH": path, "NOTES": str(self._notes)},
            cwd=self.folder,
            capture_output=True,
        )
        assert done.returncode == 0, done.stderr
        assert not done.stderr, done.stderr
        assert sorted(self.folder.rglob("*")) == before, "a name ran"
        calls = self._notes.read_bytes().decode().split("\1")[:-1]
        return [call.split("\0")[:-1] for call in calls]


def check_lines(lines: Iterable[str]) -> None:
    for line in lines:
        assert line.isprintable(), line


def check_commands(pick: random.Random, box: Sandbox) -> None:
    """Lines as ``scan`` and ``decode`` suggest them, and comments."""
    names = [name(pick) for _ in range(8)]
    lines = [command_line("note", one, ("--name", one)) for one in names]
    lines += [comment(f"of {shell_word(one)}, {one}") for one in names]
    check_lines(lines)
    script = box.folder / "lines.sh"
    script.write_text("\n".join(lines))
    calls = box.run(script, pick.choice(("sh", "bash")))
    shown = [one for one in names if one.isprintable()]
    options = [[f"--name={one}"] if one.startswith("-") else ["--name", one] for one in shown]
    assert calls == [["note", one, *words] for one, words in zip(shown, options, strict=True)]


def check_state(pick: random.Random, box: Sandbox) -> None:
    """``recover --metadata --report``: commands.sh and topics.yaml."""
    state = ClusterState()
    topics = sorted({name(pick) for _ in range(4)})
    for number, topic in enumerate(topics):
        state.topics[str(number)] = topic
        state.partitions[str(number), 0] = Partition(str(number), 0, [1])
        state.configs["topic", topic] = {name(pick): name(pick), "cleanup.policy": name(pick)}
    state.configs["group", name(pick)] = {"a.b": name(pick)}
    state.users[name(pick), "SCRAM-SHA-256"] = 1
    for kind in ("topic", "group", "user", "99"):
        state.acls[kind] = {
            "resource_type": kind,
            "resource_name": name(pick),
            "pattern_type": "literal",
            "principal": f"User:{name(pick)}",
            "host": name(pick),
            "operation": "read",
            "permission": "allow",
        }
    script = box.folder / "commands.sh"
    lines = ["#!/bin/sh", "set -e", *state_files.commands(state)]
    check_lines(lines)
    script.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    calls = box.run(script, pick.choice(("sh", "bash")))
    made = [call for call in calls if call[0] == "kafka-topics.sh"]
    for call in made:
        words = "\0".join(call)
        assert any(f"\0--topic\0{one}\0" in words or f"\0--topic={one}\0" in words for one in topics)
    written = state_files.strimzi(state)
    check_lines(written.split("\n"))
    documents = [one for one in yaml.safe_load_all(written) if one]
    legal = [one for one in topics if is_topic_name(one) and one not in TOPICS]
    assert sorted(one["spec"]["topicName"] for one in documents) == legal
    for one in documents:
        assert one["spec"]["config"] == state.configs["topic", one["spec"]["topicName"]]


def lost(pick: random.Random) -> pa.Table:
    """Rows of ``lost_records`` in topics, keys, values, headers and copies of hostile names."""
    rows: list[dict[str, Any]] = []
    for offset in range(6):
        row: dict[str, Any] = dict.fromkeys(LOST_RECORDS.arrow_schema().names)
        given = [pick.choice((None, name(pick).encode("utf-8", "replace"), pick.randbytes(4))) for _ in "123"]
        row |= {"topic": name(pick), "partition": 0, "offset": offset, "copy": name(pick), "why": "diverged"}
        row |= {"timestamp_ms": 1, "producer_id": -1, "producer_epoch": -1, "sequence": -1, "leader_epoch": 0}
        row |= {"key": given[0], "value": given[1], "headers": [{"key": name(pick), "value": given[2]}]}
        row |= {"is_transactional": False, "segment": name(pick), "acknowledged_why": name(pick)}
        rows.append(row)
    return pa.Table.from_pylist(rows, LOST_RECORDS.arrow_schema())


def check_restore(pick: random.Random, box: Sandbox) -> None:
    """``recover --report``: restore.sh with its files, lost_records.csv and the rows of the page."""
    database = duckdb.connect()
    table = lost(pick)
    database.register("lost_records", table)
    names = sorted(set(table["topic"].to_pylist()))
    policies = {one: Policy(pick.random() < 0.5, name(pick)) for one in names}
    register_topics(database, policies)
    write_restore(database, box.folder, count_losses(database), policies)
    script = (box.folder / "restore.sh").read_text(encoding="utf-8")
    check_lines(script.splitlines())
    shell = pick.choice(("sh", "bash"))
    calls = box.run(box.folder / "restore.sh", shell)
    legal = {one for one in table["topic"].to_pylist() if is_topic_name(one)}
    named = set()
    for call in calls:
        words = "\0".join(call)
        found = [one for one in legal if f"\0--topic\0{one}\0" in words or f"\0--topic={one}\0" in words]
        named |= set(found) or {one for one in legal if f"restore/{one[:200]}" in words}
    assert named == legal
    for path in (box.folder / "restore").glob("*"):  # none where no record has a topic that may be
        assert b"\0" not in path.read_bytes()
        if path.suffix == ".jsonl":
            assert all(json.loads(line)["topic"] in legal for line in path.read_text().splitlines())
    rows = [[*one.values()] for one in table.to_pylist()]
    written = "".join(",".join(map(pages.data_cell, row)) + "\n" for row in rows)
    expected = [[pages.cell_text(value) for value in row] for row in rows]
    check_csv(written, expected)
    check_page("".join(pages.html_table(table.to_pylist(), page._LOST)))


csv.field_size_limit(1 << 30)
_GUARDED = re.compile("(?s)'('*[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20].*)")
_SHOWN = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def check_csv(written: str, expected: list[list[str]]) -> None:
    """A table reads back as it was, but for what is guarded and escaped; no cell is a formula."""
    assert not _SHOWN.search(written)
    found = list(csv.reader(io.StringIO(written, newline="")))
    for cells, texts in zip(found, expected, strict=True):
        for cell, own in zip(cells, texts, strict=True):
            plain = _SHOWN.sub(lambda one: one[0].encode("unicode_escape").decode(), own)
            unguarded = _GUARDED.fullmatch(cell)
            assert (unguarded[1] if unguarded else cell) == plain
            is_number = re.fullmatch(r"[+-]?[0-9][0-9.,:/ -]*([eE][+-]?[0-9]+)?", cell)
            assert is_number or cell[:1] not in "=+-@\t\r\n" or not cell


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found |= {tag, *(f"{tag}.{attribute}" for attribute, _ in attrs)}

    def handle_comment(self, data: str) -> None:
        self.found.add(f"comment {data}")


def check_page(written: str) -> None:
    parser = _Tags()
    parser.feed(written)
    parser.close()
    assert parser.found <= {"h2", "p", "table", "tr", "td", "td.class", "th", "p.title"}, parser.found
    assert not re.search("[\0\x1b\u202e]", written)


def check_texts(pick: random.Random, box: Sandbox) -> None:
    """Cells of CSV of ``query``, and text of pages."""
    names = [name(pick) for _ in range(8)]
    lines = [json.dumps({"a": one, "b": -1}) for one in names]
    check_csv(
        "\n".join([*csv_lines([ResultColumn("a"), ResultColumn("b")], lines), ""]),
        [["a", "b"], *([one, "-1"] for one in names)],
    )
    check_csv("".join(f"{csv_cell(one)}\n" for one in names), [[one] for one in names])
    check_page("".join(f'<p title="{html_text(one)}">{html_text(one)}</p>' for one in names))


CHECKS: tuple[Callable[[random.Random, Sandbox], None], ...] = (
    *(check_commands, check_state, check_restore, check_texts),
)


def run(cases: int, seed: int) -> int:
    """Checks that many cases, each a writer with other names; how many names there were."""
    for number in range(cases):
        pick = random.Random(f"{seed}.{number}")
        with tempfile.TemporaryDirectory() as folder:
            CHECKS[number % len(CHECKS)](pick, Sandbox(Path(folder)))
    return cases


def main() -> None:
    parser = argparse.ArgumentParser(description="Fuzzes what is written for shells, tables and browsers.")
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=secrets.randbits(31), help="default: another each time")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    print(f"written     {run(options.cases, options.seed):>12,} cases, nothing ran", flush=True)


if __name__ == "__main__":
    main()
