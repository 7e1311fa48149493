"""Makes what a release consists of, in ``dist/``: called by ``make release``.

The wheel with compiled kernels and the sdist, each checked; a software bill of materials (CycloneDX) and the
licences of what the extras bring; the checksums of all of it. Nothing is uploaded.

The version is ``kafka_log_lake.__version__``. Its tag is ``v`` and the version; CHANGELOG.md has its section.
Exit code 0: all is there; 1: a check failed, which one line names.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Collection, Iterator, Sequence
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import kafka_log_lake
from tools.package import make_wheel

ROOT = Path(__file__).resolve().parent.parent
LICENCES, SUMS = "licences.txt", "SHA256SUMS"


class CheckFailed(Exception):
    """Something that a release must not have."""


def main() -> None:
    """Makes the files and prints their names; ends with 1 at the first check that fails."""
    version, folder = kafka_log_lake.__version__, ROOT / "dist"
    try:
        check_version(
            version, (ROOT / "CHANGELOG.md").read_text(), _git("tag", "--points-at", "HEAD").split()
        )
        if _git("status", "--porcelain", "--untracked-files=no"):
            raise CheckFailed("there are changes that are not committed")
        made = [make_wheel(folder), make_sdist(folder)]
        check_sdist(*made)
        _run(_uv("uvx"), "twine", "check", "--strict", *map(str, made))
        made += [make_bill(folder, version), make_licences(folder)]
    except CheckFailed as error:
        sys.exit(f"release: {error}")
    sums = "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in made)
    (folder / SUMS).write_text(sums)
    for path in [*made, folder / SUMS]:
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1e6:.2f} MB")


def check_version(version: str, changelog: str, tags: Sequence[str]) -> None:
    """Raises a CheckFailed unless the newest section of the changelog and a tag of HEAD are the version's."""
    newest = re.search(r"^## (.+)$", changelog, re.MULTILINE)
    if newest is None or newest[1] != version:
        raise CheckFailed(
            f"the newest section of CHANGELOG.md is {newest[1] if newest else 'missing'!r}, and the version "
            f"is {version}: name it '## {version}' once it is complete"
        )
    if f"v{version}" not in tags:
        raise CheckFailed(f"HEAD has no tag v{version}: git tag v{version}")


def make_sdist(folder: Path) -> Path:
    """Builds the sdist, in which the links to pipelines/ and udfs/ are folders. Returns its path."""
    _run(_uv("uv"), "build", "--quiet", "--sdist", "--out-dir", str(folder), str(ROOT))
    return folder / f"kafka_log_lake-{kafka_log_lake.__version__}.tar.gz"


def check_sdist(wheel: Path, sdist: Path) -> None:
    """Raises a CheckFailed where the sdist lacks a source that the wheel has."""
    with zipfile.ZipFile(wheel) as packed, tarfile.open(sdist) as sources:
        ours = {
            name for name in packed.namelist() if name.endswith((".py", ".sql", ".html", ".css", ".json"))
        }
        held = {name.partition("/")[2] for name in sources.getnames()}
    missing = sorted(ours - held)
    if missing:
        raise CheckFailed(f"the sdist lacks {len(missing)} files of the wheel: {', '.join(missing[:3])}")


def make_bill(folder: Path, version: str) -> Path:
    """Writes the software bill of materials of the extras, by CycloneDX's own tool."""
    path = folder / f"kafka_log_lake-{version}.cdx.json"
    names = {canonicalize_name(one.name) for one in _brought()}
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as requirements:
        requirements.write(locked((ROOT / "requirements.lock").read_text(), names))
        requirements.flush()
        tool = (_uv("uvx"), "--from", "cyclonedx-bom", "cyclonedx-py", "requirements", requirements.name)
        _run(*tool, "--pyproject", str(ROOT / "pyproject.toml"), "--output-file", str(path))
    return path


def locked(lock: str, names: Collection[str]) -> str:
    """Returns the part of a lock file about some packages. Raises a CheckFailed where it lacks one."""
    blocks = dict(re.findall(r"^(([\w.-]+)==(?:.*\\\n)*.*\n)", lock, re.MULTILINE))
    found = {str(canonicalize_name(name)): block for block, name in blocks.items()}
    missing = sorted({*names} - found.keys())
    if missing:
        raise CheckFailed(f"requirements.lock lacks {', '.join(missing)}: make lock")
    return "".join(found[name] for name in sorted(names))


def make_licences(folder: Path) -> Path:
    """Writes the licence of each package that the extras bring. Raises a CheckFailed for one without."""
    lines = sorted({f"{one.name} {one.version}: {licence(one)}" for one in _brought()}, key=str.lower)
    unknown = [line for line in lines if line.endswith(": ")]
    if unknown:
        raise CheckFailed(f"no licence is known of {', '.join(unknown)}")
    path = folder / LICENCES
    path.write_text("\n".join(lines) + "\n")
    return path


def licence(package: metadata.Distribution) -> str:
    """Returns the licence that a package names: SPDX, a classifier, or its own words; else ""."""
    about = package.metadata
    classifiers = [
        one.rpartition(" :: ")[2] for one in about.get_all("Classifier") or () if one.startswith("License")
    ]
    words = _field(package, "License").strip().splitlines()
    return _field(package, "License-Expression") or ", ".join(classifiers) or (words[0] if words else "")


def _field(package: metadata.Distribution, name: str) -> str:
    return (package.metadata.get_all(name) or [""])[0]


def _brought() -> Iterator[metadata.Distribution]:
    """Yields the packages of all extras, and what these need, as they are installed here."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    left = [
        *project["dependencies"],
        *(one for extra in project["optional-dependencies"].values() for one in extra),
    ]
    seen: set[tuple[str, frozenset[str]]] = set()
    while left:
        needed = Requirement(left.pop())
        key = needed.name.lower(), frozenset(needed.extras)
        if key in seen or (needed.marker is not None and not needed.marker.evaluate({"extra": ""})):
            continue
        seen.add(key)
        found = metadata.distribution(needed.name)
        yield found
        for text in found.requires or ():
            inner = Requirement(text)
            extras = ["", *needed.extras]
            if inner.marker is None or any(inner.marker.evaluate({"extra": extra}) for extra in extras):
                inner.marker = None
                left.append(str(inner))


def _uv(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def _git(*arguments: str) -> str:
    return _run("git", *arguments).strip()


def _run(*command: str) -> str:
    """Runs a command in the checkout. Returns what it prints; raises a CheckFailed with its last line."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise CheckFailed(f"{Path(command[0]).name} {command[1]}: {said[-1] if said else done.returncode}")
    return done.stdout


if __name__ == "__main__":
    main()
