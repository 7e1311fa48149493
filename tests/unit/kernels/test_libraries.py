"""C functions of wheels: used where they do what we know, found by trying; else there is another way."""

from __future__ import annotations

import pytest

from kafka_log_lake.udfs.kernels import libraries

TRIED = {
    "LZ4_decompress_safe": libraries._expands_lz4,
    "ZSTD_decompressDCtx": libraries._expands_zstd,
    "ZSTD_findFrameCompressedSize": libraries._expands_zstd,
    "crc32_gzip_refl": libraries._computes_crc32,
}


class Other:
    """A function of the same name that another release may have."""

    restype = None

    def __call__(self, *arguments: object) -> int:
        return 7


@pytest.mark.parametrize("name", TRIED)
def test_a_function_that_is_missing_is_not_used(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(libraries._FUNCTIONS, name, None)
    assert not TRIED[name]()


@pytest.mark.parametrize("name", TRIED)
def test_a_function_that_does_something_else_is_not_used(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(libraries._FUNCTIONS, name, Other())
    assert not TRIED[name]()
