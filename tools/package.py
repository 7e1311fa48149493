"""Builds what users and clusters install, in ``dist/``: called by ``make package``, ``make wheel``.

The wheel, with the kernels compiled for levels of x86-64; the same as a zip for ``--py-files``; and
``environment.tar.gz`` for ``--archives``, with what an executor needs: this Python, the packages that
decoding imports (as .venv has them), and what the wheel holds. It runs in whatever folder it is unpacked.
"""

from __future__ import annotations

import base64
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from kafka_log_lake.udfs.decoder import compile_kernels
from kafka_log_lake.udfs.kernels import machine_code
from kafka_log_lake.udfs.kernels.machine_code import LEVELS

ROOT = Path(__file__).resolve().parent.parent
ZIP, ARCHIVE = "kafka_log_lake.zip", "environment.tar.gz"

# Needed by commands alone, which no executor runs
_OF_COMMANDS = {"argcomplete", "rich"}
# Of Python itself: its own tests, and what makes windows, environments and programs of C
_LEFT_OUT = (
    *("test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3", "config-*"),
    *("site-packages", "dist-packages", "__pycache__"),
)
# The folder of Python's shared library is known when it starts, wherever the archive lies
_START = """\
#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
LD_LIBRARY_PATH="$here/../lib${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}" exec "$here/{name}" "$@"
"""


def main(only: Sequence[str] = ()) -> None:
    """Makes the three files, or the wheel alone where ``only`` is ``["wheel"]``, and prints their sizes."""
    wheel = make_wheel(ROOT / "dist")
    for path in [wheel] if [*only] == ["wheel"] else [wheel, make_zip(wheel), make_archive(wheel)]:
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1e6:.1f} MB")


def make_wheel(folder: Path, levels: Iterable[str] = LEVELS) -> Path:
    """Builds the wheel of this checkout. Returns its path in a folder, which is created if missing.

    levels: of x86-64, for which it brings the kernels compiled; on other processors it brings none.
    """
    with tempfile.TemporaryDirectory() as scratch:
        pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*pip, "--wheel-dir", scratch, str(ROOT)], check=True)
        (made,) = Path(scratch).iterdir()
        if (sys.platform, platform.machine()) == ("linux", "x86_64"):
            _add_files(made, {name: content for level in levels for name, content in _kernels(level)})
        folder.mkdir(parents=True, exist_ok=True)
        return Path(shutil.move(made, folder / made.name))


def _kernels(level: str) -> Iterator[tuple[str, bytes]]:
    """Yields (path in the wheel, bytes) of all kernels' machine code for a level. Raises if one fails."""
    with tempfile.TemporaryDirectory() as cache:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("NUMBA")}
        # Of Numba itself: features are what the level does not name
        target = {"NUMBA_CPU_NAME": level, "NUMBA_CPU_FEATURES": f"+{machine_code.PRODUCT}"}
        environment = kept | target | {"NUMBA_CACHE_DIR": cache}
        subprocess.run(
            [sys.executable, "-m", "kafka_log_lake.udfs.decoder.compile_kernels"],
            env=environment,
            cwd=ROOT,
            check=True,
        )
        (folder,) = Path(cache).iterdir()
        if not any(folder.glob(f"{compile_kernels.MARK}-*")):
            raise RuntimeError(f"the kernels could not be compiled for {level}")
        for file in sorted(folder.glob("*.o")):
            name = f"{machine_code.COMPILED}/{folder.name}/{level}/{file.name}"
            yield f"kafka_log_lake/udfs/{name}", file.read_bytes()


def _add_files(wheel: Path, files: dict[str, bytes]) -> None:
    """Adds files to a wheel, and to its RECORD, which lists them with their hashes."""
    with zipfile.ZipFile(wheel) as old:
        content = {name: old.read(name) for name in old.namelist()}
    record = next(name for name in content if name.endswith(".dist-info/RECORD"))
    lines = [
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip('=')},{len(data)}\n"
        for name, data in files.items()
    ]
    listed = "".join(lines).encode() + content.pop(record)
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as new:
        for name, data in {**content, **files, record: listed}.items():
            new.writestr(name, data)


def make_zip(wheel: Path) -> Path:
    """Copies the wheel to a name next to it that ``--py-files`` takes. Returns the path."""
    return Path(shutil.copyfile(wheel, wheel.with_name(ZIP)))


def make_archive(wheel: Path) -> Path:
    """Packs the environment for executors. Returns the path of the archive, next to the wheel."""
    with tempfile.TemporaryDirectory() as scratch:  # a folder of this user's alone: the kernels' have to be
        environment = Path(scratch)
        python = _copy_python(environment)
        packages = _packages_folder(python)
        with zipfile.ZipFile(wheel) as unpacked:
            unpacked.extractall(packages)
        for needed in _needed_by(next(packages.glob("*.dist-info"))):
            _copy_package(needed, packages)
        return _packed(environment, wheel.with_name(ARCHIVE))


def _copy_python(environment: Path) -> Path:
    """Copies this Python without packages. Returns the path of its start script."""
    name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    binary = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    stdlib = environment / sys.platlibdir / name
    shutil.copytree(sysconfig.get_path("stdlib"), stdlib, ignore=shutil.ignore_patterns(*_LEFT_OUT))
    for folder in ("bin", "lib"):
        (environment / folder).mkdir(exist_ok=True)
    shutil.copy2(binary, environment / "bin" / name)
    mapped = Path("/proc/self/maps").read_text()
    for library in sorted(set(re.findall(r"/.*/libpython[^/\n]*", mapped))):
        shutil.copy2(library, environment / "lib")
    start = environment / "bin" / "python"
    start.write_text(_START.format(name=name))
    start.chmod(0o755)
    return start


def _run(python: Path, *arguments: str) -> str:
    """Runs the environment's Python without this one's settings. Returns what it prints."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "NUMBA", "LD_"))}
    done = subprocess.run(
        [python, *arguments], env=kept, cwd=python.parent, stdout=subprocess.PIPE, check=True
    )
    return done.stdout.decode().strip()


def _packages_folder(python: Path) -> Path:
    folder = Path(_run(python, "-c", "import site; print(site.getsitepackages()[0])"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _needed_by(info: Path) -> Iterator[metadata.Distribution]:
    """Yields the packages that decoding needs of a wheel with this ``.dist-info``, and what these need."""
    left: list[metadata.Distribution] = [metadata.Distribution.at(info)]
    seen = set(_OF_COMMANDS)
    while left:
        for text in left.pop().requires or ():
            requirement = Requirement(text)
            requested = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
            if requested and requirement.name not in seen:
                seen.add(requirement.name)
                found = metadata.distribution(requirement.name)
                left.append(found)
                yield found


def _copy_package(package: metadata.Distribution, folder: Path) -> None:
    """Copies the files of an installed package to a folder, without its tests and its commands."""
    for file in package.files or ():
        if not {"..", "tests"} & set(file.parts):
            to = folder / file
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file.locate(), to)


def _packed(environment: Path, archive: Path) -> Path:
    def of_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        return member

    part = archive.with_name(f"{archive.name}.part")
    with tarfile.open(part, "w:gz", compresslevel=4) as packed:
        for path in sorted(environment.iterdir()):
            packed.add(path, path.name, filter=of_root)
    return part.replace(archive)


if __name__ == "__main__":
    main(sys.argv[1:])
