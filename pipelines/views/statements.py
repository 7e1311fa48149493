"""SQL statements as text: where one ends, and whether it only reads. Nothing is parsed but tokens."""

from __future__ import annotations

import re

# What may hold a semicolon that ends nothing: quoted text and names, comments. An open one goes on
_TOKENS = re.compile(
    r"""'(?:[^'\\]|\\.)*(?:'|\Z) | "(?:[^"\\]|\\.)*(?:"|\Z) | `[^`]*(?:`|\Z)
    | --[^\n]* | /\*(?:.*?\*/|.*\Z) | ; | [^'"`;/-]+ | .""",
    re.DOTALL | re.VERBOSE,
)


def split_statements(text: str) -> tuple[list[str], str]:
    """The statements in a text that ``;`` ends, and what is left behind the last."""
    statements: list[str] = []
    rest = ""
    for token in _TOKENS.findall(text):
        if token == ";":
            statements.append(rest.strip())
            rest = ""
        else:
            rest += token
    return statements, rest


def has_code(statement: str) -> bool:
    """Whether a statement is more than blanks and comments."""
    return any(token.strip() and not token.startswith(("--", "/*")) for token in _TOKENS.findall(statement))


_NO_CODE = ("--", "/*", "'", '"', "`")
_READING = {"SELECT", "WITH", "FROM", "VALUES", "TABLE", "SHOW", "DESC", "DESCRIBE", "EXPLAIN"}


def only_reads(statement: str) -> bool:
    """Whether a statement changes no table: by its first word, and no INSERT behind WITH or FROM."""
    code = " ".join(
        token for token in _TOKENS.findall(statement) if not token.startswith(("--", "/*", "'", '"', "`"))
    )
    words = re.findall(r"[A-Za-z_]\w*", code.upper())
    return not words or (words[0] in _READING and "INSERT" not in words)
