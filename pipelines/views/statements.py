"""SQL statements as text: where one ends, and whether it only reads. Nothing is parsed but tokens."""

from __future__ import annotations

import re

from pipelines.lake.address import refuse_commits_by_spark

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


_READING = {"SELECT", "WITH", "FROM", "VALUES", "TABLE", "SHOW", "DESC", "DESCRIBE", "EXPLAIN"}
# Behind WITH, FROM and EXPLAIN too
_CHANGES = re.compile(r"\bINSERT\b|\bDELETE\s+FROM\b|\bMERGE\b.*\bINTO\b|\bUPDATE\b.*\bSET\b", re.DOTALL)
_OF_SESSION = {"SET", "RESET", "USE", "CACHE", "UNCACHE", "CLEAR", "REFRESH", "DECLARE", "ADD", "LIST"}
_TEMPORARY = re.compile(
    r"(CREATE (OR REPLACE )?(GLOBAL )?|DROP )TEMP(ORARY)? (VIEW|FUNCTION|VARIABLE)\b|DROP VIEW\b"
)


def _code(statement: str) -> str:
    """The words of a statement in capitals, without comments and what is quoted."""
    return " ".join(
        token for token in _TOKENS.findall(statement) if not token.startswith(("--", "/*", "'", '"', "`"))
    ).upper()


def only_reads(statement: str) -> bool:
    """Whether a statement changes nothing: by its first word, and no INSERT and the like behind it."""
    code = _code(statement)
    words = re.findall(r"[A-Z_]\w*", code)
    return not words or (words[0] in _READING and not _CHANGES.search(code))


def commits_nothing(statement: str) -> bool:
    """Whether a statement changes no table: it only reads, or changes the session alone."""
    words = re.findall(r"[A-Z_]\w*", _code(statement))
    is_of_session = bool(words) and words[0] in _OF_SESSION
    return only_reads(statement) or is_of_session or _TEMPORARY.match(" ".join(words)) is not None


def refuse_changes_on_s3(lake: str, statement: str) -> None:
    """Raises a UserError for a statement that changes tables, where the lake is on S3."""
    if not commits_nothing(statement):
        refuse_commits_by_spark(
            lake, "SQL", "use maintain for upkeep, and the Python package deltalake for other changes"
        )
