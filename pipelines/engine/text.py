"""Parses a statement of Spark SQL with sqlglot, after taking the string literals out of its text.

What a literal means differs between parsers (``'it''s'``, ``'\\n'``, ``'a' 'b'``). Here Spark's rules decide
(``ParserUtils.unescapeSQLString``), and the parser sees only a number in each literal's place.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from pipelines.command.errors import UserError
from pipelines.sql.errors import Unsupported

# sqlglot warns of what it cannot parse; then Spark answers
logging.getLogger("sqlglot").setLevel(logging.CRITICAL)

_TOKENS = re.compile(
    r"""(?P<text>'(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*") | (?P<name>`[^`]*`)
    | (?P<comment>--[^\n]* | /\*(?!\+).*?\*/) | (?P<word>\w+) | (?P<other>.)""",
    re.DOTALL | re.VERBOSE,
)
_ESCAPES = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "0": "\0",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "%": r"\%",
    "_": r"\_",
}
_PREFIX = "text "
# A colon is written in the types of structs, and behind a VARIANT, which none of the tables have
_WITH_COLONS = {"struct", "variant", "parse_json", "try_parse_json", "to_variant_object"}


@dataclass(frozen=True)
class Statement:
    """A parsed statement. texts: the string literals, by the number that stands in their place.

    words: the words of its text in lower case, without names in backticks, texts and comments.
    """

    tree: exp.Expr
    texts: tuple[str, ...]
    words: frozenset[str]

    def text(self, literal: exp.Literal) -> str:
        """The value of a string literal of the tree."""
        number = literal.name.removeprefix(_PREFIX)
        if number == literal.name:
            raise Unsupported("a literal of this kind")
        return self.texts[int(number)]


def parse(sql: str) -> Statement:
    """Parses one statement. Raises Unsupported if it cannot be read here, a UserError for a colon."""
    if "${" in sql or "|>" in sql:
        raise Unsupported("a variable or a pipe")
    check_colons(sql)
    texts: list[str] = []
    words: set[str] = set()
    pieces: list[str] = []
    for token in _TOKENS.finditer(sql):
        kind, piece = token.lastgroup, token.group()
        if kind == "text" and not re.fullmatch("[xX]", pieces[-1] if pieces else ""):
            if pieces and re.fullmatch(r"[rR]", pieces[-1]):
                raise Unsupported("a raw string")
            pieces.append(f"'{_PREFIX}{len(texts)}'")
            texts.append(_unescaped(piece))
            continue
        if kind == "word":
            words.add(piece.lower())
        pieces.append(" " if kind == "comment" else piece)
    try:
        trees = sqlglot.parse("".join(pieces), dialect="spark")
    except (SqlglotError, RecursionError):
        raise Unsupported("syntax that its parser does not know") from None
    trees = [tree for tree in trees if tree is not None]
    if len(trees) != 1 or trees[0] is None:
        raise Unsupported("not one statement")
    return Statement(trees[0], tuple(texts), frozenset(words))


def check_colons(sql: str) -> None:
    """Raises a UserError for ``text:name``, which reads a field of JSON in other dialects alone."""
    pieces = [m.group() for m in _TOKENS.finditer(sql) if m.lastgroup in ("name", "word", "other")]
    code = "".join("`" if piece[0] == "`" else piece for piece in pieces)
    if re.search(r"(?<!:):(?!:)", code) and not _WITH_COLONS & {piece.lower() for piece in pieces}:
        raise UserError(
            "SQL: a colon reads no field of JSON here: write get_json_object(CAST(value AS STRING), "
            "'$.name') or from_json(CAST(value AS STRING), 'name STRING').name"
        )


def _unescaped(literal: str) -> str:
    """The value of a literal in its quotes. Two quotes within are one."""

    def one(match: re.Match[str]) -> str:
        if match[1] is None:
            return literal[0]
        if match[1] not in _ESCAPES:
            raise Unsupported(f"the escape {match[0]} in a string")
        return _ESCAPES[match[1]]

    return re.sub(rf"\\(.)|{literal[0] * 2}", one, literal[1:-1], flags=re.DOTALL)
