"""A lake keeps the formats that a person gave for topics, in a file that others may have changed."""

import resource
from pathlib import Path

import pytest

from kafka_log_lake.pipelines.typed.schemas import keep_formats, kept_formats
from kafka_log_lake.udfs.values.apps.topic_format import TopicFormats

_GIVEN = TopicFormats.parsed(
    {"orders.*": {"kind": "time-windowed", "key": "string", "window_size_ms": 5}, "dead": "dlq"}
)


def test_formats_come_back_as_they_were_given(tmp_path: Path) -> None:
    assert not keep_formats(str(tmp_path), _GIVEN)
    assert kept_formats(str(tmp_path)) == _GIVEN


def test_a_write_that_breaks_off_leaves_the_formats_that_were_there(tmp_path: Path) -> None:
    keep_formats(str(tmp_path), _GIVEN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))  # as on a disk that is full
    try:
        with pytest.raises(OSError, match="File too large"):
            keep_formats(str(tmp_path), TopicFormats.parsed({"dead": "dlq"}))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert kept_formats(str(tmp_path)) == _GIVEN


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"[1]", b'{"t": "nothing known"}', b"[" * 200_000])
def test_a_damaged_file_is_told_and_can_be_given_again(
    content: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keep_formats(str(tmp_path), _GIVEN)
    (file,) = tmp_path.glob("*/_formats.json")
    file.write_bytes(content)
    assert kept_formats(str(tmp_path)) == TopicFormats()
    assert "give --formats again" in caplog.text
    keep_formats(str(tmp_path), _GIVEN)
    assert kept_formats(str(tmp_path)) == _GIVEN
