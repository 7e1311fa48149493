"""``make release``: what it refuses, and what it tells of the packages that come with a release."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import kafka_log_lake
from tools import release

CHANGELOG = "# Changelog\n\n## 1.2.0\n\n- One.\n\n## 1.1.0\n"


def test_a_version_needs_its_section_and_its_tag() -> None:
    release.check_version("1.2.0", CHANGELOG, ["latest", "v1.2.0"])
    with pytest.raises(release.CheckFailed, match=r"HEAD has no tag v1\.2\.0: git tag v1\.2\.0"):
        release.check_version("1.2.0", CHANGELOG, ["v1.1.0"])
    for changelog in (CHANGELOG.replace("1.2.0", "1.2.0 (not released)"), "# Changelog\n"):
        with pytest.raises(release.CheckFailed, match=r"name it '## 1\.2\.0' once it is complete"):
            release.check_version("1.2.0", changelog, ["v1.2.0"])


def test_the_changelog_has_a_section_for_the_version() -> None:
    text = (release.ROOT / "CHANGELOG.md").read_text()
    newest = re.search(r"^## (\S+)", text, re.MULTILINE)
    assert newest is not None
    assert newest[1] == kafka_log_lake.__version__


def test_each_package_of_the_extras_has_a_licence_and_is_locked(tmp_path: Path) -> None:
    lines = release.make_licences(tmp_path).read_text().splitlines()
    assert len(lines) > 50
    assert any(re.fullmatch(r"numpy [\d.]+: .*BSD.*", line) for line in lines)
    # Of code that is not under a free licence nothing can be passed on
    assert not [line for line in lines if re.search(r"proprietary|unknown", line, re.IGNORECASE)]
    lock = (release.ROOT / "requirements.lock").read_text()
    part = release.locked(lock, {line.split()[0].lower().replace("_", "-") for line in lines})
    assert len(re.findall(r"^[\w.-]+==", part, re.MULTILINE)) == len(lines)
    assert "pytest==" not in part


def test_a_package_that_is_not_locked_stops_a_release() -> None:
    with pytest.raises(release.CheckFailed, match=r"requirements\.lock lacks b: make lock"):
        release.locked("a==1 \\\n    --hash=sha256:00\n", {"a", "b"})
