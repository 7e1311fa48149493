"""Statements for DuckDB: one pass over their tokens.

``offset`` is a reserved word there, and a column of most tables here. Where no OFFSET clause can be it is
quoted. The views are written for Spark and DuckDB alike; ``view_text`` changes two more things in them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import duckdb

# What begins the number of an OFFSET clause: OFFSET 5, OFFSET (1 + 1), OFFSET ?, OFFSET $1
_BEGINS_NUMBER = frozenset("0123456789(?$")
_LAMBDA_FUNCTIONS = {"transform": "list_transform"}  # a macro cannot take a lambda


class Token(NamedTuple):
    """A token with the blanks behind it.

    is_word: whether it is a bare word; else it is a quoted one, a literal, a sign or a comment.
    """

    text: str
    is_word: bool
    is_comment: bool

    @property
    def word(self) -> str:
        """The bare word in small letters; "" for another token."""
        return self.text.strip().lower() if self.is_word else ""

    def replaced(self, text: str) -> str:
        """Another text, with this token's blanks behind it."""
        return text + self.text[len(self.text.rstrip()) :]


def tokens(text: str) -> Iterator[Token]:
    """The tokens of a text, as DuckDB reads them. Joined, they are the text."""
    content = text.encode()  # DuckDB counts bytes
    found = duckdb.tokenize(text)
    if not found:
        yield Token(text, False, True)
        return
    ends = [*(at for at, _ in found[1:]), len(content)]
    if found[0][0]:
        yield Token(content[: found[0][0]].decode(), False, True)
    for (at, kind), end in zip(found, ends, strict=True):
        part = content[at:end].decode()
        is_word = kind in (duckdb.token_type.keyword, duckdb.token_type.identifier) and part[0] not in '"`'
        yield Token(part, is_word, kind == duckdb.token_type.comment)


def duckdb_text(statement: str) -> str:
    """A statement with each bare ``offset`` quoted that begins no OFFSET clause."""
    return "".join(_quoted(list(tokens(statement))))


def _quoted(found: list[Token]) -> Iterator[str]:
    for i, token in enumerate(found):
        if token.word != "offset":
            yield token.text
            continue
        behind = next((one.text[0] for one in found[i + 1 :] if not one.is_comment), "")
        yield token.text if behind in _BEGINS_NUMBER else token.replaced('"offset"')


def view_text(select: str, parameters: Mapping[str, str]) -> str:
    """The SELECT of a view for DuckDB.

    parameters: name -> type in DuckDB; each is cast to it, because a macro takes values of any type.
    A lambda ``x -> y`` becomes ``lambda x: y``.
    """
    made: list[str] = []
    found = list(tokens(select))
    for i, (token, text) in enumerate(zip(found, _quoted(found), strict=True)):
        after_dot = i > 0 and found[i - 1].text.strip() == "."
        if token.text.strip() == "->":
            made[-1] = f"lambda {made[-1].strip()}"
            made.append(": ")
        elif token.word in parameters and not after_dot:
            made.append(token.replaced(f'CAST("{token.word}" AS {parameters[token.word]})'))
        elif token.word in _LAMBDA_FUNCTIONS:
            made.append(token.replaced(_LAMBDA_FUNCTIONS[token.word]))
        else:
            made.append(text)
    return "".join(made)
