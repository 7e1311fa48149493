"""An inspected batch as one object for JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from pipelines.inspection.text import raw_bytes
from udfs.inspection.batch import Inspection


def to_json(path: str, found: Inspection) -> dict[str, Any]:
    """Fields have their bytes as hexadecimal digits; a cause has the byte that was changed, and the bit."""
    return {
        "file": path,
        "position": found.position,
        "size_bytes": found.size,
        "magic": found.magic,
        "status": found.status,
        "problem": found.problem or None,
        "checksum": asdict(found.checksum) if found.checksum else None,
        "records": found.records,
        "causes": [
            {
                "kind": cause.kind,
                "certainty": cause.certainty,
                "text": cause.text,
                "position": cause.position if cause.position >= 0 else None,
                "size_bytes": cause.size,
                "changed_bits": cause.bits or None,
                "bit": cause.bit if cause.bit >= 0 else None,
            }
            for cause in found.causes
        ],
        "records_once_mended": found.mended if found.mended >= 0 else None,
        "before": found.before._asdict() if found.before else None,
        "after": found.after._asdict() if found.after else None,
        "fields": [
            {
                "name": one.name,
                "place": one.place,
                "position": one.at,
                "size_bytes": one.size,
                "bytes": raw_bytes(found, one).hex(),
                "value": one.value,
                "meaning": one.meaning,
                "level": one.level,
                "problem": one.problem or None,
            }
            for one in found.fields
        ],
    }
