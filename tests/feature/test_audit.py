"""What ``make audit`` says of pip-audit's findings."""

from __future__ import annotations

from tools.audit import verdict

SOUND = {"name": "numpy", "version": "2.0", "vulns": []}
SKIPPED = {"name": "zipp", "skip_reason": "not found"}
BAD = {"name": "lz4", "version": "4.0", "vulns": [{"id": "CVE-1", "fix_versions": ["4.1"]}]}


def test_a_vulnerability_is_named_and_fails() -> None:
    assert verdict([SOUND, BAD]) == (
        1,
        ["lz4 4.0: CVE-1, fixed in 4.1", "2 packages, 1 known vulnerabilities"],
    )


def test_none_known_is_success() -> None:
    lines = ["1 packages, 0 known vulnerabilities; nothing is known of zipp"]
    assert verdict([SOUND, SKIPPED]) == (0, lines)


def test_where_nobody_could_be_queried_nothing_is_called_sound() -> None:
    for packages in ([], [SKIPPED]):
        code, (line,) = verdict(packages)
        assert code == 2
        assert "nothing is known of any package" in line
