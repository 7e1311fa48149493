"""Records of ``__remote_log_metadata`` as the ``toString`` of Kafka's classes writes them."""

from __future__ import annotations

import base64
from typing import Any

_SEGMENT_STATES = (
    *("COPY_SEGMENT_STARTED", "COPY_SEGMENT_FINISHED", "DELETE_SEGMENT_STARTED", "DELETE_SEGMENT_FINISHED"),
)
_PARTITION_STATES = ("DELETE_PARTITION_MARKED", "DELETE_PARTITION_STARTED", "DELETE_PARTITION_FINISHED")


def _state(names: tuple[str, ...], code: int) -> str:
    """Kafka's map of states gives null for another code."""
    return names[code] if 0 <= code < len(names) else "null"


def _partition(entry: dict[str, Any]) -> str:
    return f"{entry['id']}:{entry['name']}-{entry['partition']}"


def _segment_id(entry: dict[str, Any]) -> str:
    partition = _partition(entry["topicIdPartition"])
    return f"RemoteLogSegmentId{{topicIdPartition={partition}, id={entry['id']}}}"


def _custom(text: str | None) -> str:
    if text is None:
        return "Optional.empty"
    return f"Optional[CustomMetadata{{{len(base64.b64decode(text))} bytes}}]"


def _epochs(entries: list[dict[str, Any]]) -> str:
    by_epoch = {entry["leaderEpoch"]: entry["offset"] for entry in entries}
    return "{" + ", ".join(f"{epoch}={by_epoch[epoch]}" for epoch in sorted(by_epoch)) + "}"


def _written(name: str, fields: dict[str, Any]) -> str:
    return name + "{" + ", ".join(f"{key}={value}" for key, value in fields.items()) + "}"


def _bounds(value: dict[str, Any]) -> dict[str, Any]:
    names = ("startOffset", "endOffset", "brokerId", "maxTimestampMs", "eventTimestampMs")
    return {name: value[name] for name in names}


def _segment_rest(value: dict[str, Any]) -> dict[str, Any]:
    return {
        "segmentLeaderEpochs": _epochs(value["segmentLeaderEpochs"]),
        "segmentSizeInBytes": value["segmentSizeInBytes"],
        "customMetadata": _custom(value["customMetadata"]),
        "state": _state(_SEGMENT_STATES, value["remoteLogSegmentState"]),
        "txnIdxEmpty": _flag(value.get("txnIndexEmpty", False)),
    }


def _flag(is_true: bool) -> str:
    return "true" if is_true else "false"


def _check(value: dict[str, Any]) -> None:
    """Raises ValueError for what the constructors of Kafka's classes refuse."""
    states = _PARTITION_STATES if "remotePartitionDeleteState" in value else _SEGMENT_STATES
    code = value.get("remotePartitionDeleteState", value.get("remoteLogSegmentState"))
    if code is None or not 0 <= code < len(states):
        raise ValueError(f"state {code} is not known")
    if "startOffset" in value:
        if value["startOffset"] < 0:
            raise ValueError(f"start offset: expected 0 or more, found {value['startOffset']}")
        if value["endOffset"] < value["startOffset"]:
            raise ValueError(
                f"end offset: expected {value['startOffset']} or more, found {value['endOffset']}"
            )
        if not value["segmentLeaderEpochs"]:
            raise ValueError("segment leader epochs: expected one or more, found none")


def remote_metadata_text(name: str, value: dict[str, Any]) -> str:
    """name: of the message; value: its fields, as ``udfs.values`` reads them.

    Raises ValueError where Kafka's class can't be made of them.
    """
    _check(value)
    if name == "RemoteLogSegmentMetadataRecord":
        fields = {"remoteLogSegmentId": _segment_id(value["remoteLogSegmentId"])}
        return _written("RemoteLogSegmentMetadata", fields | _bounds(value) | _segment_rest(value))
    if name == "RemoteLogSegmentMetadataUpdateRecord":
        fields = {
            "remoteLogSegmentId": _segment_id(value["remoteLogSegmentId"]),
            "customMetadata": _custom(value["customMetadata"]),
            "state": _state(_SEGMENT_STATES, value["remoteLogSegmentState"]),
            "eventTimestampMs": value["eventTimestampMs"],
            "brokerId": value["brokerId"],
        }
        return _written("RemoteLogSegmentMetadataUpdate", fields)
    if name == "RemotePartitionDeleteMetadataRecord":
        fields = {
            "topicPartition": _partition(value["topicIdPartition"]),
            "state": _state(_PARTITION_STATES, value["remotePartitionDeleteState"]),
            "eventTimestampMs": value["eventTimestampMs"],
            "brokerId": value["brokerId"],
        }
        return _written("RemotePartitionDeleteMetadata", fields)
    fields = {name: value[name] for name in ("segmentId", "startOffset", "endOffset", "maxTimestampMs")}
    return _written("RemoteLogSegmentMetadataSnapshot", fields | _segment_rest(value))
