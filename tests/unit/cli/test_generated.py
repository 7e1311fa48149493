"""What is written for a shell, a spreadsheet or a browser holds names and values as data: nothing acts."""

from __future__ import annotations

import csv
import io
import json
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from kafka_log_lake.pipelines.cli.generated import (
    command_line,
    comment,
    csv_cell,
    html_text,
    json_line,
    shell_word,
)
from kafka_log_lake.pipelines.cli.values import is_topic_name
from tests.fuzz import written

HOSTILE = (
    *("a\ntouch ran", "a\rb", "$(touch ran)", "`touch ran`", "'; touch ran; '", '"; touch ran; "', "a\\"),
    *(
        "--delete",
        "-x",
        "; touch ran",
        "a\0b",
        "\x1b[2J",
        "\x03touch ran\n",
        "\u202etouch ran",
        "a b",
        "#",
        "~",
    ),
    *(
        "a\u2028touch ran",
        "\x9b2J",
        "é",
        "日本",
        "!!",
        "*",
        "${IFS}",
        "x" * 100_000,
        "\udcff",
        "",
        "%s",
        "{a,b}",
    ),
)


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_a_shell_gets_each_name_as_one_word_or_nothing(shell: str, tmp_path: Path) -> None:
    script = [f"{command_line('printf %s.', one, ('--name', one))}; echo" for one in HOSTILE]
    script += [comment(f"of {one} and of {shell_word(one)}") for one in HOSTILE]
    assert all(line.isprintable() for line in script)
    done = subprocess.run([shell], input="\n".join(script).encode(), cwd=tmp_path, capture_output=True)
    assert done.stderr == b""
    shown = [one for one in HOSTILE if one.isprintable()]
    expected = [f"{one}.--name={one}." if one.startswith("-") else f"{one}.--name.{one}." for one in shown]
    assert done.stdout.decode().splitlines() == expected
    assert not list(tmp_path.iterdir())


def test_a_pasted_comment_runs_nothing_where_the_shell_knows_no_comments(tmp_path: Path) -> None:
    """zsh takes ``#`` for the name of a command unless it is told otherwise."""
    lines = [comment(f"the batch of {shell_word(one)}").replace("#", "true", 1) for one in HOSTILE]
    done = subprocess.run(["sh"], input="\n".join(lines).encode(), cwd=tmp_path, capture_output=True)
    assert (done.stderr, list(tmp_path.iterdir())) == (b"", [])


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        *((None, ""), ("", '""'), ("a,b", '"a,b"'), ("a\nb", '"a\nb"'), ("'a", "'a"), (" =1", " =1")),
        *(
            ("=1+1", "'=1+1"),
            ("@a", "'@a"),
            ("+x", "'+x"),
            ("-x", "'-x"),
            ("\tx", "'\tx"),
            ("\rx", '"\'\rx"'),
            ("\n=x", '"\'\n=x"'),
        ),
        *(
            ("'=1", "''=1"),
            ("\uff1d1", "'\uff1d1"),
            ("=a,b", '"\'=a,b"'),
            ("-1.5e3", "-1.5e3"),
            ("+49 1", "+49 1"),
        ),
        *(
            ("a\0\x1b\u202e", "a\\x00\\x1b\\u202e"),
            ("-", "'-"),
            ("-1+cmd|x", "'-1+cmd|x"),
            ("\udcff", "\\udcff"),
        ),
    ],
)
def test_a_cell_of_csv_is_no_formula(text: str | None, cell: str) -> None:
    assert csv_cell(text) == cell
    (row,) = csv.reader(io.StringIO(f"{cell},end\n", newline=""))
    assert len(row) == 2
    assert csv_cell("+aA==", is_data=True) == "+aA=="


def test_json_holds_the_same_and_drives_no_terminal() -> None:
    held = {"a": "\x9b2J \u202e \u2028 \x7f é 日本 \u200d \n \x1b"}
    line = json_line(json.dumps(held, ensure_ascii=False))
    assert json.loads(line) == held
    assert not set(line) & set("\x9b\u202e\u2028\x7f")
    assert "é 日本" in line


def test_a_text_is_no_markup() -> None:
    found: list[str] = []

    class Parser(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.append(f"{tag} {[name for name, _ in attrs]}")

    parser = Parser()
    for one in ("<script>a</script>", "<!--title-->", '" onclick="a', "' onclick='a", "]]>", "a\0b", "&lt;"):
        parser.feed(f'<p title="{html_text(one)}">{html_text(one)}</p>')
    assert set(found) == {"p ['title']"}


def test_names_that_kafka_takes() -> None:
    taken = ("a", "A-z_0.9", "x" * 249, "...", "-", "__consumer_offsets")
    assert all(map(is_topic_name, taken))
    assert not any(map(is_topic_name, ("", ".", "..", "x" * 250, "a\n", "é", "a b", "a/b", "a\0")))


def test_hostile_names_in_every_script_and_table_run_nothing() -> None:
    """A small part of what ``make fuzz`` does with other names each time."""
    assert written.run(48, seed=54) == 48
