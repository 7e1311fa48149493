"""Decision tables: rules that Python evaluates, and that views have as SQL.

A table is a sequence of cases. A case is the conditions that it needs, named and parted by blanks, "" for
none, and its answers. The first case whose conditions all hold decides; the last one needs none.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

Case = tuple[str, ...]


def decide(table: Sequence[Case], holding: Container[str]) -> list[str]:
    """Returns the answers of the first case that holds. holding: the names of the conditions that hold."""
    return next(answers for needed, *answers in table if all(word in holding for word in needed.split()))


def as_sql(table: Sequence[Case], answer: int = 0) -> str:
    """Returns an SQL expression over boolean columns with the names of the conditions. answer: which one."""
    *cases, (_, *last) = table
    whens = [
        f"WHEN {' AND '.join(needed.split())} THEN {text(answers[answer])}" for needed, *answers in cases
    ]
    return f"CASE {' '.join(whens)} ELSE {text(last[answer])} END"


def text(value: str) -> str:
    """Returns a string literal of SQL, of words without a backslash."""
    return "'" + value.replace("'", "''") + "'"
