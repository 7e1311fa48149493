"""The exit code of ``find`` over random disks is a model's."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kafka_log_lake.pipelines.find import command as find
from tests.support.drawn import first
from tests.support.model_disk import expected_code, hurt, made_log, write_checkpoint

pytestmark = pytest.mark.sampled


@pytest.mark.parametrize("seed", first(2, range(12)))
def test_exit_codes_are_those_of_the_model(
    seed: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for number in range(15):
        chance = random.Random(f"{seed} {number}")
        disk = tmp_path / str(number)
        disk.mkdir()
        logs = [made_log(chance, partition) for partition in range(chance.randint(1, 2))]
        for log in logs:
            hurt(log, chance)
            log.write(disk)
        noted = [log for log in logs if log.high_watermark is not None]
        lines = [f"a {log.partition} {log.high_watermark}" for log in noted]
        write_checkpoint(disk / "replication-offset-checkpoint", lines)
        arguments = [str(disk), "--key", "none", "--cores", "1"]
        partition = chance.choice((None, None, 0, 1))
        arguments += [] if partition is None else ["--partition", str(partition)]
        offsets = None
        if chance.random() < 0.4:
            low = chance.randrange(60)
            offsets = low, low + chance.randrange(15)
            arguments += ["--offset", f"{low}:{offsets[1] + 1}"]
        include_deleted = chance.random() < 0.4
        arguments += ["--include-deleted"] if include_deleted else []
        code = find.main(arguments)
        expected = expected_code(logs, partition, offsets, include_deleted)
        assert code == expected, (seed, number, arguments, capfd.readouterr().err)
        capfd.readouterr()
