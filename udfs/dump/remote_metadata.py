"""Records of ``__remote_log_metadata`` as the ``toString`` of Kafka's classes writes them."""

from __future__ import annotations

import base64
from typing import Any

_SEGMENT_STATES = (
    *("COPY_SEGMENT_STARTED", "COPY_SEGMENT_FINISHED", "DELETE_SEGMENT_STARTED", "DELETE_SEGMENT_FINISHED"),
)
_PARTITION_STATES = ("DELETE_PARTITION_MARKED", "DELETE_PARTITION_STARTED", "DELETE_PARTITION_FINISHED")


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


def _segment_rest(value: dict[str, Any]) -> dict[str, Any]:
    return {
        "segmentLeaderEpochs": _epochs(value["segmentLeaderEpochs"]),
        "segmentSizeInBytes": value["segmentSizeInBytes"],
        "customMetadata": _custom(value["customMetadata"]),
        "state": _SEGMENT_STATES[value["remoteLogSegmentState"]],
        "txnIdxEmpty": str(bool(value.get("txnIndexEmpty"))).lower(),
    }


def _check(name: str, value: dict[str, Any]) -> None:
    """Raises ValueError for what the constructor of Kafka's class refuses, in its order and words."""
    if name == "RemotePartitionDeleteMetadataRecord":
        if not 0 <= value["remotePartitionDeleteState"] < len(_PARTITION_STATES):
            raise ValueError("null")  # of an exception without a message
        return
    state = value["remoteLogSegmentState"]
    problems = [(not 0 <= state < len(_SEGMENT_STATES), "state can not be null")]
    if "segmentLeaderEpochs" in value:
        is_empty = not value["segmentLeaderEpochs"]
        problems.append((is_empty, "segmentLeaderEpochs can not be null or empty"))
    if name == "RemoteLogSegmentMetadataRecord":  # made with a known state first, which is then set
        problems = [*_bad_offsets(value["startOffset"], value["endOffset"]), *reversed(problems)]
    for is_bad, words in problems:
        if is_bad:
            raise ValueError(words)


def _bad_offsets(start: int, end: int) -> list[tuple[bool, str]]:
    below = f"Unexpected start offset = {start}. StartOffset for a remote segment cannot be negative"
    after = (
        f"Unexpected end offset = {end}. EndOffset for a remote segment cannot be less than "
        f"startOffset = {start}"
    )
    return [(start < 0, below), (end < start, after)]


def remote_metadata_text(name: str, value: dict[str, Any]) -> str:
    """name: of the message; value: its fields, as ``udfs.values`` reads them.

    Raises ValueError where Kafka's class can't be made of them.
    """
    _check(name, value)
    if name == "RemoteLogSegmentMetadataRecord":
        names = ("startOffset", "endOffset", "brokerId", "maxTimestampMs", "eventTimestampMs")
        fields = {"remoteLogSegmentId": _segment_id(value["remoteLogSegmentId"])}
        fields |= {name: value[name] for name in names} | _segment_rest(value)
        return _written("RemoteLogSegmentMetadata", fields)
    if name == "RemoteLogSegmentMetadataUpdateRecord":
        fields = {
            "remoteLogSegmentId": _segment_id(value["remoteLogSegmentId"]),
            "customMetadata": _custom(value["customMetadata"]),
            "state": _SEGMENT_STATES[value["remoteLogSegmentState"]],
            "eventTimestampMs": value["eventTimestampMs"],
            "brokerId": value["brokerId"],
        }
        return _written("RemoteLogSegmentMetadataUpdate", fields)
    if name == "RemotePartitionDeleteMetadataRecord":
        fields = {
            "topicPartition": _partition(value["topicIdPartition"]),
            "state": _PARTITION_STATES[value["remotePartitionDeleteState"]],
            "eventTimestampMs": value["eventTimestampMs"],
            "brokerId": value["brokerId"],
        }
        return _written("RemotePartitionDeleteMetadata", fields)
    fields = {name: value[name] for name in ("segmentId", "startOffset", "endOffset", "maxTimestampMs")}
    return _written("RemoteLogSegmentMetadataSnapshot", fields | _segment_rest(value))
