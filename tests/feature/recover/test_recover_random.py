"""Random sets of copies, damaged at random, against a model that knows what every leader wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.replicas_held import SAID, Variant, wrong_answers


def wrong(seeds: range, variant: Variant, folder: Path) -> list[str]:
    return [text for seed in seeds for text in wrong_answers(seed, variant, folder / str(seed))]


@pytest.mark.parametrize("damage", [0.0, 0.1])
def test_the_true_log_is_healed_and_the_rest_is_billed(tmp_path: Path, damage: float) -> None:
    for moves_start in (False, True):
        seeds = range(int(moves_start), 40, 2)
        assert wrong(seeds, Variant(moves_start, False, damage), tmp_path) == []


@pytest.mark.parametrize("damage", [0.0, 0.05])
def test_a_compacted_log_keeps_the_newest_value_of_each_key(tmp_path: Path, damage: float) -> None:
    assert wrong(range(30), Variant(False, True, damage), tmp_path) == []


@pytest.mark.parametrize("is_compacted", [False, True])
def test_files_that_are_gone_old_or_wrong_give_no_wrong_answer_without_a_doubt(
    tmp_path: Path, is_compacted: bool
) -> None:
    found = wrong(range(30), Variant(not is_compacted, is_compacted, 0.0, odds=0.1), tmp_path)
    assert [text for text in found if not text.startswith(SAID)] == []
