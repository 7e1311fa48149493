"""Writes text for other programs: shells, spreadsheets, browsers, YAML.

Names and values in it are from disks that anybody may have written. The text is one line, holds no character
that drives a terminal, and is data to the program that reads it.
"""

from __future__ import annotations

import base64
import html
import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from kafka_log_lake.pipelines.cli.terminal import printable

# Of a page that is one file: it loads nothing. Pages without a script have no right to run one
PAGE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"

# Controls but tab and line breaks, and marks that turn the direction of writing: no cell of a table needs one
_CONTROLS = re.compile(
    "[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
# What a spreadsheet takes for a formula, as OWASP lists it; what was guarded before is guarded once more
_FORMULA = re.compile("'*[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
_NUMBER = re.compile(r"[+-]?[0-9][0-9.,:/ -]*([eE][+-]?[0-9]+)?")
_QUOTED = re.compile('[,"\r\n]')


def comment(text: str) -> str:
    r"""Returns a line of comment for a shell and for YAML: a line break in the text is shown as ``\n``."""
    return f"# {printable(text)}"


def shell_word(text: str) -> str:
    """Returns a name or path for a comment, quoted where a shell could act on it.

    zsh runs pasted comments.
    """
    return shlex.quote(printable(text))


def command_line(head: str, *words: str | tuple[str, str]) -> str:
    """Returns the line that runs a command in a POSIX shell.

    head: the begin of the line as it is. words: further words, which are quoted; a pair is an option and its
    value. Where a word has characters that can't be printed (line breaks, ESC, marks that turn the direction
    of writing) the line is a comment that shows the command and runs nothing: pasted into a terminal, such
    characters act in spite of quotes.
    """
    flat = [part for word in words for part in ([word] if isinstance(word, str) else _option(*word))]
    line = " ".join((head, *map(shlex.quote, flat)))
    return line if line.isprintable() else comment(f"left out, for characters that can't be printed: {line}")


def _option(name: str, value: str) -> list[str]:
    """Returns the words of an option and its value, which may begin with a dash."""
    return [f"{name}={value}"] if value.startswith("-") else [name, value]


def csv_cell(value: str | bool | int | float | None, is_data: bool = False) -> str:
    r"""Returns a cell of RFC 4180: null is an empty cell, an empty text a quoted one; truth is ``true``.

    A text that a spreadsheet would take for a formula gets an apostrophe before it. Controls other than tab
    and line breaks, and marks that turn the direction of writing, are escaped: ``\x1b``. is_data: the text is
    of a number or in Base64, and no formula, though it may begin like one.
    """
    if value is None:
        return ""
    if not isinstance(value, str):
        return str(value).lower()
    text = without_controls(value)
    if not is_data and _FORMULA.match(text) and not _NUMBER.fullmatch(text):
        text = f"'{text}"
    return text if text and not _QUOTED.search(text) else '"' + text.replace('"', '""') + '"'


def without_controls(text: str) -> str:
    r"""Returns a text with the characters escaped that ``csv_cell`` names, such as ``\x1b`` for ESC."""
    return _CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def base64_text(data: bytes | None) -> str | None:
    """Returns bytes in Base64, as JSON has them; None for None."""
    return None if data is None else base64.b64encode(data).decode()


def utf8_text(data: bytes | None) -> str | None:
    """Decodes UTF-8; returns None for None and for other bytes."""
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return None


def header_pairs(headers: Iterable[Mapping[str, Any]] | None) -> list[list[str | None]]:
    """Returns the headers of a record as JSON has them: pairs of a name and a value in Base64."""
    return [[header["key"], base64_text(header["value"])] for header in headers or ()]


def json_line(line: str) -> str:
    r"""Returns the same JSON, with what drives a terminal in its texts as escapes: ``\u009b``, ``\u202e``."""
    return _CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", line)


def html_text(text: str) -> str:
    """Escapes a text for an element or a quoted attribute of HTML."""
    return html.escape(printable(text))
