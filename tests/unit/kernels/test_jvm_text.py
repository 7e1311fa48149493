"""Header keys that are not UTF-8: the text that Java's ``new String(bytes, UTF_8)`` makes of them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafka_log_lake.udfs.kernels import jvm_text
from kafka_log_lake.udfs.kernels.jvm_text import repair_utf8
from tests.support import reference_records
from tests.support.drawn import examples

assert reference_records  # registers "as-the-jvm"

_LEADING = st.sampled_from([0xC0, 0xC2, 0xDF, 0xE0, 0xE1, 0xED, 0xEF, 0xF0, 0xF1, 0xF4, 0xF5, 0xFF])
_FOLLOWING = st.sampled_from([0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF])
_HARD = st.lists(_LEADING | _FOLLOWING, max_size=12).map(bytes)
_KEYS = st.lists(_HARD | st.binary(max_size=8) | st.text(max_size=4).map(str.encode), min_size=1, max_size=8)


@examples(1000)
@given(_KEYS)
@example([b"\xed\xa0\x80\xed\xb0\x80", b"\xed\xa0", b"\xed\xa0A", b"", b"\xf4\x90\x80\x80", b"\xe0\x80\x80"])
def test_each_malformed_part_becomes_one_replacement(keys: list[bytes]) -> None:
    found = repair_utf8(pa.array(keys, pa.binary()))
    found.validate(full=True)
    assert found.to_pylist() == [key.decode("utf-8", "as-the-jvm") for key in keys]


def test_where_replacements_would_pass_what_a_column_holds_they_are_one_byte(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jvm_text, "_MOST", 8)
    keys = [b"a\xff\xff", b"\xc3\xa9\xed\xa0\x80"]
    assert repair_utf8(pa.array(keys, pa.binary())).to_pylist() == ["a??", "é?"]
