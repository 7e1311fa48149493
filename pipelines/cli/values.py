"""Checks the values of settings: each function takes what a user wrote, and returns the checked value.

A ValueError holds the rule that a wrong value breaks, to follow the setting's name in a message.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Self

from kafka_log_lake.pipelines.cli.errors import CallError, UserError
from kafka_log_lake.udfs.format.levels import parse_levels
from kafka_log_lake.udfs.format.patterns import compiled


def setting(
    default: object, parse: Callable[[object], Any], help_text: str, metavar: str | None = None
) -> Any:
    """Declares a setting as a field of a dataclass.

    parse: returns the checked value, or raises a ValueError with the rule. metavar: the placeholder of its
    value in ``--help``; None: the last word of its name.
    """
    metadata = {"parse": parse, "help": help_text, "metavar": metavar}
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Checked:
    """Options that are checked when they are made: a wrong name or value raises a UserError of one line."""

    def __new__(cls, *places: object, **values: object) -> Self:
        names = [field.name for field in dataclasses.fields(cls)]
        if places:
            raise CallError(f"{cls.__name__} takes values by name: {cls.__name__}({names[0]}=...)")
        check_names(values, names)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is None and field.default is None:
                continue
            try:
                parsed = field.metadata["parse"](value)
            except ValueError as error:
                raise UserError(f"{option(field.name)} {error}") from None
            object.__setattr__(self, field.name, parsed)


def nearest(word: str, words: Iterable[str]) -> str:
    """Returns ``; did you mean x?`` to end a message about an unknown name; "" if no word is similar."""
    similar = difflib.get_close_matches(word, list(words), n=1)
    return f"; did you mean {similar[0]}?" if similar else ""


def check_names(given: Iterable[str], known: Sequence[str]) -> None:
    """Raises a CallError for the name of a setting that is not known, with the most similar one."""
    for name in given:
        if name not in known:
            hint = nearest(str(name).replace("-", "_"), known) or f"; known settings: {', '.join(known)}"
            raise CallError(f"unknown setting {name!r}{hint}")


def option(name: str) -> str:
    """Returns the option of a setting as the command line writes it: ``--one-copy`` for ``one_copy``."""
    return "--" + name.replace("_", "-")


MIB = 1024 * 1024
_INT64 = 1 << 63
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = {"": 1, "k": 1024, "m": MIB, "g": 1024 * MIB, "t": 1024 * 1024 * MIB}


def is_utf8(value: str) -> bool:
    """Says whether a text can be encoded in UTF-8.

    Other bytes of an argument or a path are surrogates in Python.
    """
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def text(value: object) -> str:
    """Returns a string that is not empty."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"must be a non-empty string, not {value!r}")
    return value


def texts(value: object) -> tuple[str, ...]:
    """Returns one string or several as a tuple."""
    if isinstance(value, str):
        return (text(value),)
    if not isinstance(value, Iterable) or isinstance(value, bytes | Mapping):
        raise ValueError(f"must be a string or a list of strings, not {value!r}")
    return tuple(text(item) for item in value)


def key_files(value: object) -> tuple[str, ...]:
    """Returns texts ID=FILE with absolute paths, as tasks run in other folders."""
    pairs = [text.partition("=") for text in texts(value)]
    if not all(name and path for name, _, path in pairs):
        raise ValueError("takes ID=FILE.pem: the id of the key in the manifests, and a private key")
    return tuple(f"{name}={os.path.abspath(path)}" for name, _, path in pairs)


def flag(value: object) -> bool:
    """Returns a bool, which must be one: a text is refused."""
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, not {value!r}")
    return value


def byte_count(value: object) -> int:
    """Returns a number of bytes, above 0 and below 8 EiB.

    A text may end in a unit from KiB to TiB, in any letter case: ``1MiB``, ``1MB`` and ``1m`` are 2^20.
    """
    if isinstance(value, str):
        match = re.fullmatch(r"(\d+)\s*(?:([kmgt])(?:i?b)?|b)?", value.strip().lower())
        if match:
            value = int(match.group(1)) * _UNITS[match.group(2) or ""]
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < _INT64:
        raise ValueError(
            f"must be a number of bytes above 0 and below 8EiB, such as 1048576 or 1MiB, not {value!r}"
        )
    return value


def byte_text(value: int) -> str:
    """Returns a number of bytes as text in the largest unit that divides it, such as ``64MiB``."""
    for unit in ("t", "g", "m", "k"):
        if value % _UNITS[unit] == 0:
            return f"{value // _UNITS[unit]}{unit.upper()}iB"
    return str(value)


def count(value: object) -> int:
    """Returns a whole number from 1 to 2^31 - 1, which may be given by its digits."""
    return _integer(value, "must be a whole number above 0 and below 2^31", 1, 1 << 31)


def core_count(value: object) -> int:
    """Returns a number of processes or threads, 1 to 1024.

    DuckDB starts all of them, whatever the machine takes.
    """
    return _integer(value, "must be a whole number from 1 to 1024", 1, 1025)


def from_0(end: float, rule: str = "must be a whole number from 0 on") -> Callable[[object], int]:
    """Returns a parser of whole numbers from 0 on and below ``end``.

    rule: what its ValueError says.
    """
    return lambda value: _integer(value, rule, 0, end, "[0-9]+")


partition_number = from_0(1 << 31, "must be a whole number from 0 to 2147483647")


def amount(value: object) -> float:
    """Returns a finite number, 0 or above, as float."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]+(\.[0-9]*)?|\.[0-9]+", value):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError(f"must be a number of 0 or above, such as 0.5, not {value!r}")
    return float(value)


def currency(value: object) -> str:
    """Returns three capital letters, such as ``EUR``; whether there is such a currency is not asked."""
    if not isinstance(value, str) or not re.fullmatch("[A-Z]{3}", value):
        raise ValueError(f"must be the three letters of a currency, such as USD or EUR, not {value!r}")
    return value


def codec_levels(value: object) -> str:
    """Returns the text of codecs with their levels, checked by ``udfs.format.levels.parse_levels``."""
    try:
        parse_levels(text(value))
    except ValueError as error:
        raise ValueError(f"must be codecs separated by commas, such as gzip:6,snappy: {error}") from None
    return text(value)


def pattern(value: object) -> str:
    """Returns the text of a regular expression, in the syntax of the package ``regex``; it must compile."""
    compiled(text(value))
    return text(value)


def is_topic_name(name: str) -> bool:
    """Says whether Kafka takes a topic of this name (``Topic.validate``)."""
    return re.fullmatch(r"[A-Za-z0-9._-]{1,249}", name) is not None and name not in (".", "..")


def topic_name(value: object) -> str:
    """Returns a name that Kafka takes for a topic (``is_topic_name``)."""
    if not is_topic_name(text(value)):
        raise ValueError(f"must be a topic's name, of letters, digits, '.', '_' and '-', not {value!r}")
    return text(value)


def delta_properties(value: object) -> str:
    """Returns the checked text of properties of Delta tables, as ``pairs`` takes it."""
    if not re.fullmatch(r"delta\.[\w.]+=[^=,\s]+(,delta\.[\w.]+=[^=,\s]+)*", text(value)):
        raise ValueError(
            "must be properties of Delta, separated by commas, such as delta.enableDeletionVectors=true, "
            f"not {value!r}"
        )
    return text(value)


def pairs(properties: str | None) -> dict[str, str]:
    """Returns the names and values in a text ``NAME=VALUE,NAME=VALUE``; {} for None."""
    return dict(pair.split("=", 1) for pair in (properties or "").split(",") if pair)


def identifier(value: object) -> str:
    """Returns the name of a schema, plain or as ``catalog.schema``."""
    if not re.fullmatch(r"\w+(\.\w+)?", text(value)):
        raise ValueError(f"must be a name of letters, digits and _, or catalog.schema, not {value!r}")
    return text(value)


def catalog_lake(value: object) -> str:
    """Returns the name of a lake in a catalog: a schema, ``catalog.schema``, or ``catalog.schema.prefix``."""
    if not re.fullmatch(r"\w+(\.\w+(\.[A-Za-z]\w*)?)?", text(value)):
        raise ValueError(
            "must be a name of letters, digits and _, catalog.schema, or catalog.schema.prefix, "
            f"not {value!r}"
        )
    return text(value)


def is_catalog_lake(lake: str) -> bool:
    """Returns whether a name is catalog.schema or catalog.schema.prefix, and no folder is called so."""
    return re.fullmatch(r"\w+(\.\w+){1,2}", str(lake)) is not None and not os.path.isdir(lake)


def memory(value: object) -> str:
    """Returns the text of a Java heap size, such as ``512m`` or ``2g``."""
    if not isinstance(value, str) or not re.fullmatch(r"[1-9]\d*[mMgG]", value):
        raise ValueError(f"must be a Java heap size such as 512m or 2g, not {value!r}")
    return value


def whole_number(value: object) -> int:
    """Returns an integer of any size and sign, which may be given by its digits."""
    return _integer(value, "must be a whole number", digits=r"-?\d+")


def _integer(
    value: object, rule: str, least: float = -math.inf, end: float = math.inf, digits: str = r"\d+"
) -> int:
    """Returns an integer, which may be given by its digits, from ``least`` on and below ``end``.

    digits: the expression that a text must match. Raises a ValueError with ``rule`` for anything else.
    """
    if isinstance(value, str) and re.fullmatch(digits, value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < end:
        raise ValueError(f"{rule}, not {value!r}")
    return value


def check_times(since: int | None, until: int | None) -> None:
    """Raises a UserError for times between which nothing is."""
    if since is not None and until is not None and since >= until:
        raise UserError("--until must be later than --since")


def moment(value: object) -> int:
    """Returns a time in ms since 1970 UTC, from such a number or a date (its midnight) or time of ISO 8601.

    A time that does not say its zone is UTC. Milliseconds are any that a batch can hold, an int64; as text
    they have 12 digits or more.
    """
    at = value
    if isinstance(value, str) and re.fullmatch("-?[0-9]{12,19}", value):
        at = int(value)
    elif isinstance(value, str) and "-" in value:
        with suppress(ValueError):
            at = datetime.fromisoformat(value)
    elif isinstance(value, date) and not isinstance(value, datetime):  # of a YAML file
        at = datetime(value.year, value.month, value.day)
    if isinstance(at, datetime):
        return ((at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH) // timedelta(milliseconds=1)
    if isinstance(at, bool) or not isinstance(at, int) or not -_INT64 <= at < _INT64:
        raise ValueError(
            "must be a date, a time or milliseconds since 1970, such as 2026-01-31, 2026-01-31T06:00:00Z or "
            f"1769839200000, not {value!r}"
        )
    return at


def offset_range(value: object) -> str:
    """Returns a checked text ``FROM:TO``, of which one may be missing."""
    match = re.fullmatch("([0-9]{0,18}):([0-9]{0,18})", value) if isinstance(value, str) else None
    if match is None or match[0] == ":" or (match[1] and match[2] and int(match[1]) >= int(match[2])):
        raise ValueError(
            "must be FROM:TO, such as 100:200 for 100 to 199, 100: or :200 (in quotes in a file), "
            f"not {value!r}"
        )
    return match[0]


def one_of(*choices: str) -> Callable[[object], str]:
    """Returns a parser that takes one of these texts as it is written, and no other."""

    def parse(value: object) -> str:
        if value not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}, not {value!r}")
        return str(value)

    return parse


def security_kinds(value: object) -> frozenset[str]:
    """Returns what ``--security`` names, separated by commas."""
    kinds = frozenset(kind.strip() for kind in str(value).split(","))
    if kinds <= {"acls", "quotas", "scram"}:
        return kinds
    raise ValueError(f"must be acls, quotas or scram, several separated by commas, not {value!r}")


def target_partitions(value: object) -> int | None:
    """Returns the number of partitions of ``--partitions``; None for ``keep``."""
    if value == "keep":
        return None
    if isinstance(value, str) and re.fullmatch("[0-9]{1,6}", value) and int(value) > 0:
        return int(value)
    raise ValueError(f"must be keep, or a number of partitions from 1 to 999999, not {value!r}")


def host_and_port(value: object) -> str:
    """Returns the checked text of ``--bootstrap-server``."""
    text = str(value)
    places = text.split(",")
    # librdkafka takes a port modulo 65,536
    found = [re.fullmatch(r"\s*(?:\[[0-9A-Fa-f:.]+\]|[^\s:/]+):([0-9]{1,5})\s*", place) for place in places]
    if not all(place and 0 < int(place[1]) < 1 << 16 for place in found):
        raise ValueError(f"must be HOST:PORT, several separated by commas, not {text!r}")
    return text
