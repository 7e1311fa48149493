"""Opens stores by fsspec: those of its protocols that pyarrow does not know, for reading only.

Credentials and endpoints are fsspec's own matter: its configuration files, the variables ``FSSPEC_*``, and
what each package of a protocol reads besides.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from threading import Lock
from typing import Any

from fsspec.core import url_to_fs
from pyarrow import PythonFile
from pyarrow.fs import FileInfo, FileSelector, FileType, FSSpecHandler, PyFileSystem

from kafka_log_lake.udfs.storage.byte_source import reason_of

_TIMES = ("mtime", "last_modified", "LastModified", "Last-Modified", "modified")  # as packages call it
_GONE = (404, 410)  # of HTTP
_THREADS = 16
_LOCK = Lock()


def open_protocol(uri: str) -> tuple[PyFileSystem, str]:
    """Returns the ``pyarrow.fs.FileSystem`` of a URI, which only reads, and the path in it.

    Raises OSError or ValueError where it can't be opened.
    """
    with _errors():
        system, path = url_to_fs(uri)
    return PyFileSystem(_Handler(system)), path


class _Handler(FSSpecHandler):
    """A file system of fsspec for pyarrow: other errors come as OSError, each file has a size and a time."""

    @contextmanager
    def asking(self) -> Iterator[Any]:
        """Yields the file system; to one thread at a time where it is not made for several."""
        with _errors(), nullcontext() if self.fs.async_impl else _LOCK:
            yield self.fs

    def get_file_info(self, paths: list[str]) -> list[FileInfo]:
        self.fs.invalidate_cache()
        if len(paths) == 1:
            return [self._look(paths[0])]
        with ThreadPoolExecutor(_THREADS) as threads:
            return list(threads.map(self._look, paths))

    def _look(self, path: str) -> FileInfo:
        try:
            with self.asking() as system:
                info = system.info(path)
                # A folder of a web server is a page with links
                if info.get("mimetype") == "text/html" and system.isdir(path):
                    info["type"] = "directory"
                if info["type"] == "file" and _modified(info) is None:
                    info["mtime"] = self._time(path)
        except FileNotFoundError as error:
            if not _is_gone(error.__cause__):
                raise OSError(reason_of(error.__cause__ or error)) from error
            return FileInfo(path, FileType.NotFound)
        return _file_info(path, info)

    def _time(self, path: str) -> datetime | float:
        """Returns when a file was written; 1970 where the protocol does not tell it."""
        try:
            modified: datetime = self.fs.modified(path)
            return modified
        except NotImplementedError:
            return 0.0

    def get_file_info_selector(self, selector: FileSelector) -> list[FileInfo]:
        """Lists a folder. Size and time of a file may be None: some listings have the names alone."""
        folder = selector.base_dir
        self.fs.invalidate_cache()
        with self.asking() as system:
            if not system.isdir(folder):
                if selector.allow_not_found:
                    return []
                raise FileNotFoundError(folder)
            depth = None if selector.recursive else 1
            files = system.find(folder, maxdepth=depth, withdirs=True, detail=True)
        return [_file_info(p, info) for p, info in files.items() if p.strip("/") != folder.strip("/")]

    def open_input_file(self, path: str) -> PythonFile:
        # Each read is one request for its bytes
        options = {"cache_type": "none"} if self.fs.async_impl else {}
        with self.asking() as system:
            return PythonFile(_HandlerFile(self, system.open(path, "rb", **options)), mode="r")

    open_input_stream = open_input_file


class _HandlerFile:
    """A file of a ``_Handler``, as pyarrow reads it."""

    def __init__(self, handler: _Handler, file: Any) -> None:
        self._handler, self._file = handler, file
        self.seek, self.tell = file.seek, file.tell

    @property
    def closed(self) -> bool:
        return bool(self._file.closed)

    def read(self, size: int = -1) -> bytes:
        with self._handler.asking():
            try:
                return bytes(self._file.read(size))
            except ValueError as error:  # of HTTP, before it brings the whole file
                raise OSError("the server gives no part of a file, only all of it") from error

    def close(self) -> None:
        with self._handler.asking():
            self._file.close()


@contextmanager
def _errors() -> Iterator[None]:
    """Turns errors other than OSError and ValueError into OSError."""
    try:
        yield
    except (OSError, ValueError):
        raise
    except Exception as error:
        raise OSError(reason_of(error)) from error


def _is_gone(cause: BaseException | None) -> bool:
    """Says whether the cause of a FileNotFoundError is a missing file: over HTTP any failure raises it."""
    is_other = isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError)
    return not is_other and getattr(cause, "status", _GONE[0]) in _GONE


def _file_info(path: str, info: dict[str, Any]) -> FileInfo:
    kind = {"file": FileType.File, "directory": FileType.Directory}.get(info["type"], FileType.Unknown)
    size = info.get("size") if kind == FileType.File else None
    return FileInfo(path.rstrip("/"), kind, size=size, mtime=_modified(info))


def _modified(info: dict[str, Any]) -> datetime | float | None:
    """Returns when a file was written; None where its info does not tell it in a form that can be read."""
    modified = next((info[name] for name in _TIMES if info.get(name) is not None), None)
    if not isinstance(modified, str):
        return modified
    with suppress(ValueError):
        return parsedate_to_datetime(modified) if "," in modified else datetime.fromisoformat(modified)
    return None
