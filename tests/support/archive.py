"""A Hadoop archive (``har:``) of a folder: a file system that Spark opens and no Python library does.

The format is that of ``org.apache.hadoop.fs.HarFileSystem``, version 3: an index with a line for each file
and folder, and all bytes in one part.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote_plus

_OWNER = "493+user+group"


def _hash(name: str) -> int:
    """Java's hash of a string, without its sign."""
    value = 0
    for character in name:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return value & 0x7FFFFFFF


def archive(folder: Path, made: Path) -> str:
    """Makes the archive of a folder. Returns its URI."""
    made.mkdir()
    lines: dict[str, str] = {}
    with (made / "part-0").open("wb") as part:
        for path in [folder, *sorted(folder.rglob("*"))]:
            name = "/" if path == folder else f"/{path.relative_to(folder)}"
            properties = f"{int(path.stat().st_mtime * 1000)}+{_OWNER}"
            if path.is_dir():
                children = "".join(f"{quote_plus(child.name)} " for child in sorted(path.iterdir()))
                lines[name] = f"{quote_plus(name)} dir {properties} 0 0 {children}\n"
            else:
                start, data = part.tell(), path.read_bytes()
                part.write(data)
                lines[name] = f"{quote_plus(name)} file part-0 {start} {len(data)} {properties} \n"
    names = sorted(lines, key=_hash)
    index = "".join(lines[name] for name in names)
    (made / "_index").write_text(index)
    (made / "_masterindex").write_text(f"3 \n{_hash(names[0])} {_hash(names[-1])} 0 {len(index)} \n")
    return f"har://{made}"
