"""Reads and writes the small files of a restore's state: in a folder, or in an object store."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyarrow import fs

from kafka_log_lake.pipelines.cli.errors import UserError, one_line, writing
from kafka_log_lake.pipelines.cli.streams import replace_file
from kafka_log_lake.udfs.arrow.parquet_sink import flush
from kafka_log_lake.udfs.storage.byte_source import path_of_uri
from kafka_log_lake.udfs.storage.store import open_store


class Files:
    """The files of one folder of a state. place: its path or URI; the folder is made with its first file."""

    def __init__(self, place: str) -> None:
        self.place, self._local = place, path_of_uri(place)
        try:
            self._system, self._folder = open_store(place)
        except (OSError, ValueError) as error:
            raise UserError(f"--state {place} can't be opened: {one_line(error)}") from None

    def names(self) -> list[str]:
        """Returns the names of its files, in order. Raises a UserError where they can't be listed."""
        return self._listed(fs.FileType.File)

    def folders(self) -> list[str]:
        """Returns the names of the folders in it, in order."""
        return self._listed(fs.FileType.Directory)

    def _listed(self, kind: fs.FileType) -> list[str]:
        try:
            entries = self._system.get_file_info(fs.FileSelector(self._folder, allow_not_found=True))
        except OSError as error:
            raise UserError(f"--state {self.place} can't be listed: {one_line(error)}") from None
        return sorted(entry.base_name for entry in entries if entry.type == kind)

    def read(self, name: str) -> bytes | None:
        """Returns the content of a file; None where there is none. Raises a UserError."""
        try:
            with self._system.open_input_stream(f"{self._folder}/{name}") as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UserError(f"--state {self.place}/{name} can't be read: {one_line(error)}") from None

    def load(self, name: str) -> Any:
        """Returns what ``keep`` wrote; None where there is no file. Raises a UserError for another one."""
        content = self.read(name)
        try:
            return None if content is None else json.loads(content)
        except ValueError:
            raise self.damaged(name) from None

    def keep(self, name: str, value: Any) -> None:
        """Writes a value as JSON in place of what the file had. Raises a UserError."""
        self.write(name, json.dumps(value).encode(), replaces=True)

    def remove(self, name: str) -> None:
        """Removes a file, if it is there. Raises a UserError where it can't be removed."""
        with writing(f"--state {self.place}/{name}"), suppress(FileNotFoundError):
            self._system.delete_file(f"{self._folder}/{name}")

    def damaged(self, name: str) -> UserError:
        """Returns the error for a file that this command did not write so."""
        return UserError(f"--state {self.place}: {name} can't be read: name another folder")

    def write(self, name: str, content: bytes, *, replaces: bool = False) -> None:
        """Writes a file, to the disk itself. replaces: another one, which stays until this one is whole.

        In an object store a file appears when it is whole. Raises a UserError where it can't be written.
        """
        with writing(f"--state {self.place}/{name}"):
            if self._local is None:
                with self._system.open_output_stream(f"{self._folder}/{name}") as out:
                    out.write(content)
                return
            folder = Path(self._local)
            folder.mkdir(parents=True, exist_ok=True)
            file = folder / (f"{name}.new" if replaces else name)
            with file.open("wb") as out:
                out.write(content)
                out.flush()
                os.fsync(out.fileno())
            if replaces:
                replace_file(file, folder / name)
            flush(str(folder))
