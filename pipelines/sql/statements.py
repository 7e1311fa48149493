"""Where statements end in a text, which a shell reads line by line; and that they are text."""

from __future__ import annotations

import re

from pipelines.command.errors import UserError
from pipelines.command.values import is_utf8

# What may hold a semicolon that ends nothing: quoted text and names, comments. An open one goes on
_BEHIND = r"""`[^`]*(?:`|\Z) | --[^\n]* | /\*(?:.*?\*/|.*\Z) | ; | [^'"`;/-]+ | ."""
_TOKENS, _WITH_ESCAPES = (
    re.compile(
        rf"""'{inside}(?:'|\Z) | "{inside.replace("'", '"')}(?:"|\Z) | {_BEHIND}""", re.DOTALL | re.VERBOSE
    )
    for inside in (r"[^']*", r"(?:[^'\\]|\\.)*")
)


def split_statements(text: str, has_escapes: bool = False) -> tuple[list[str], str]:
    """The statements in a text that ``;`` ends, and what is left behind the last.

    has_escapes: whether a backslash in a literal escapes a quote, as in Spark's SQL and not in DuckDB's.
    """
    statements: list[str] = []
    rest = ""
    for token in (_WITH_ESCAPES if has_escapes else _TOKENS).findall(text):
        if token == ";":
            statements.append(rest.strip())
            rest = ""
        else:
            rest += token
    return statements, rest


def check_text(statement: str) -> None:
    """Raises a UserError for a statement with bytes that are not UTF-8, which no engine takes."""
    if not is_utf8(statement):
        raise UserError("SQL: the statement is not UTF-8")


def has_code(statement: str) -> bool:
    """Whether a statement is more than blanks and comments."""
    return any(token.strip() and not token.startswith(("--", "/*")) for token in _TOKENS.findall(statement))
