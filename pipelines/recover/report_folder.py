"""``--report DIR``: a folder with files of one command alone, so that a later run may replace them.

Its manifest has the SHA-256 of each file, as ``sha256sum`` writes it. A folder with another file, or with one
that somebody has changed, is refused: it is not ours to overwrite.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kafka_log_lake.pipelines.cli.errors import UserError, writing
from kafka_log_lake.pipelines.cli.streams import replace_file

MANIFEST = "MANIFEST.sha256"
_UNFINISHED = ".kafka-log-lake-unfinished"  # what a run is writing; of one that was killed it is left
_HEAD = "# what kafka-log-lake {} wrote; it replaces these files alone, and only as they are here\n"
Listed = set[tuple[str, str]]  # (SHA-256, path below the folder)


def check_report_folder(path: str, command: str = "recover") -> None:
    """Raises a UserError if a file in the folder is not from the command, or has changed since."""
    folder = Path(path)
    if os.path.lexists(path) and not folder.is_dir():
        raise UserError(f"--report {path} is not a folder")
    if not folder.exists():
        return
    with writing(f"--report {path}"):
        listed = _listed(folder, command)
        other = next((name for name in _files(folder, command) if not _is_listed(folder, name, listed)), None)
    if other is not None:
        has_changed = other in {name for _, name in listed}
        why = f"has changed since {command} wrote it" if has_changed else f"was not written by {command}"
        raise UserError(f"--report {path}: {other!r} in it {why}, and is not replaced: name a new folder")


@contextmanager
def report_folder(path: str, command: str = "recover") -> Iterator[Path]:
    """Yields a folder whose files replace those of an earlier run in ``path`` once all are written.

    Raises a UserError as ``check_report_folder`` does, and where the files can't be written.
    """
    check_report_folder(path, command)
    folder = Path(path)
    made = folder / _UNFINISHED
    try:
        with writing(f"--report {path}"):
            shutil.rmtree(made, ignore_errors=True)
            made.mkdir(parents=True)
            yield made
            _replace(folder, made, command)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _replace(folder: Path, made: Path, command: str) -> None:
    """Moves the files of ``made`` into the folder. A run that is killed meanwhile leaves nothing unlisted."""
    old, new = _listed(folder, command), {(_digest(made / name), name) for name in _files(made, command)}
    _write_manifest(folder, old | new, command)
    names = {name for _, name in new}
    for name in _files(folder, command):
        if name not in names:
            (folder / name).unlink()
            with suppress(OSError):  # where other files are left in it
                (folder / name).parent.rmdir()
    for name in sorted(names):
        (folder / name).parent.mkdir(exist_ok=True)
        replace_file(made / name, folder / name)
    _write_manifest(folder, new, command)


def _files(folder: Path, command: str) -> list[str]:
    """Returns paths of all files and links below a folder except the manifest, and of empty folders."""
    names_of_files = []
    for root, folders, files in os.walk(folder):
        if Path(root) == folder:
            folders[:] = [name for name in folders if name != _UNFINISHED]
            files = [name for name in files if name != MANIFEST or not _is_manifest(folder / name, command)]
        links = [name for name in folders if os.path.islink(os.path.join(root, name))]
        names_of_files += [os.path.relpath(os.path.join(root, name), folder) for name in (*files, *links)]
        if not files and not folders and Path(root) != folder:
            names_of_files.append(os.path.relpath(root, folder))
    return sorted(names_of_files)


def _is_listed(folder: Path, name: str, listed: Listed) -> bool:
    path = folder / name
    is_plain = path.is_file() and not path.is_symlink()
    return is_plain and (_digest(path), name) in listed


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _listed(folder: Path, command: str) -> Listed:
    """Returns the entries of the folder's manifest; none unless the command wrote one."""
    if not _is_manifest(folder / MANIFEST, command):
        return set()
    text = (folder / MANIFEST).read_text(encoding="utf-8", errors="replace")
    parts = (line.partition("  ") for line in text.removeprefix(_HEAD.format(command)).splitlines())
    return {(digest, name) for digest, _, name in parts}


def _is_manifest(path: Path, command: str) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_HEAD.format(command))) == _HEAD.format(command).encode()


def _write_manifest(folder: Path, listed: Iterable[tuple[str, str]], command: str) -> None:
    text = "".join(f"{digest}  {name}\n" for digest, name in sorted(listed, key=lambda pair: pair[::-1]))
    unfinished = folder / _UNFINISHED / MANIFEST
    unfinished.write_text(_HEAD.format(command) + text, encoding="utf-8")
    replace_file(unfinished, folder / MANIFEST)
