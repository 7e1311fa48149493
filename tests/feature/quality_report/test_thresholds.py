"""The file of thresholds: what is shipped are the defaults, and mistakes in it are one line."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.quality_report.check import CHECKS, with_thresholds


def test_shipped_thresholds_are_all_defaults() -> None:
    path = Path(__file__).resolve().parents[3] / "conf" / "quality.yml"
    assert with_thresholds(str(path)) == CHECKS
    assert list(yaml.safe_load(path.read_text())) == [check.name for check in CHECKS]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("damage_bytes: {threshold: 1}", "unknown check 'damage_bytes'; did you mean damaged_bytes?"),
        ("xyz: {threshold: 1}", "unknown check 'xyz'; known checks: crc_failure_rate, "),
        ("torn_tails: 5", "torn_tails must have a threshold, a severity or both"),
        ("torn_tails: {limit: 5}", "torn_tails must have a threshold, a severity or both"),
        ("torn_tails: {threshold: -1}", "must be a number from 0 up, not -1"),
        ("torn_tails: {threshold: .nan}", "must be a number from 0 up, not nan"),
        ("torn_tails: {threshold: true}", "must be a number from 0 up, not True"),
        ("torn_tails: {severity: fatal}", "must be one of error, warning, none, not 'fatal'"),
        ("- a", "is a list: write `name: value` lines, without the dashes"),
        ("a: [", "is not valid YAML"),
    ],
)
def test_wrong_thresholds_are_one_line(tmp_path: Path, text: str, line: str) -> None:
    path = tmp_path / "quality.yml"
    path.write_text(text)
    with pytest.raises(UserError) as raised:
        with_thresholds(str(path))
    assert line in str(raised.value)
    assert str(raised.value).startswith("--thresholds: ")
