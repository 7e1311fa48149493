"""Keys and values that Streams, Connect and MirrorMaker wrote, against what their own classes decode."""

from __future__ import annotations

import base64
import json
import random
import struct
import tracemalloc
from typing import Any

import pyarrow as pa
import pytest

from kafka_log_lake.udfs.values.apps import mirror
from kafka_log_lake.udfs.values.apps.topic_format import TopicFormat, TopicFormats
from kafka_log_lake.udfs.values.schemas.payload import ERROR_CLASSES
from kafka_log_lake.udfs.values.schemas.payload_heads import pairs_of
from kafka_log_lake.udfs.values.schemas.payloads import KEY, VALUE, PayloadReader
from kafka_log_lake.udfs.values.schemas.registry import Registry, Schema, guid_of
from kafka_log_lake.udfs.values.schemas.topic_labels import topic_labels
from kafka_log_lake.udfs.values.typed.columns import SideDecoder
from tests.support import apps_corpus as apps
from tests.unit.values.test_payloads import same

TOPICS = sorted(apps.oracle())
WITH_SIDES = [one for one in TOPICS if not apps.kinds()[one]["kind"].startswith(("mm2", "dlq"))]


def labelled(cluster: str, topic: str, registry: Registry) -> tuple[PayloadReader, dict[str, str]]:
    reader = PayloadReader(registry)
    return reader, topic_labels(reader, topic, list(apps.records(cluster, topic))[:500])


@pytest.mark.parametrize(("cluster", "topic"), WITH_SIDES)
def test_declared_topics_are_what_their_classes_decode(cluster: str, topic: str) -> None:
    reader, labels = labelled(cluster, topic, Registry(formats=apps.formats(cluster)))
    rows = {row["offset"]: row for row in apps.records(cluster, topic)}
    for line in apps.oracle()[cluster, topic]:
        row = rows[line["offset"]]
        for side in (KEY, VALUE):
            one = reader.read(topic, side, row[side], pairs_of(row["headers"]), labels[side])
            if "error" in line and side == VALUE:
                assert one.reason == "truncated"
            elif "error" not in line:
                assert one.reason is None, (line, one)
                assert same(one.value, apps.wanted(cluster, line)[side]), (line, one)


@pytest.mark.parametrize(("cluster", "topic"), TOPICS)
def test_nothing_wrong_is_said_of_topics_that_nobody_declares(cluster: str, topic: str) -> None:
    """Bytes, text and JSON are what they are; all else must be what the classes decode, but for the end."""
    reader, labels = labelled(cluster, topic, Registry())
    rows = {row["offset"]: row for row in apps.records(cluster, topic)}
    for line in apps.oracle()[cluster, topic]:
        for side in (KEY, VALUE):
            payload = rows[line["offset"]][side]
            one = reader.read(topic, side, payload, pairs_of(rows[line["offset"]]["headers"]), labels[side])
            assert one.reason is None, (line, one)
            if payload is None or one.format in ("bytes", "empty") or one.format.startswith("mm2"):
                continue
            if one.format == "text":
                assert one.value == payload.decode()
            elif one.format == "json":
                assert same(one.value, json.loads(payload))
            elif "error" not in line:
                assert same(_without_end(one.value), _without_end(apps.wanted(cluster, line)[side])), line


def _without_end(value: Any) -> Any:
    return {k: v for k, v in value.items() if k != "end"} if isinstance(value, dict) else value


@pytest.mark.parametrize(
    ("topic", "side", "name"),
    [
        ("shop-by-qty-windows-changelog", KEY, "window-changelog"),
        ("shop-qty-sessions-store-changelog", KEY, "session-changelog"),
        ("shop-by-window-max-changelog", KEY, "time-windowed"),
        ("shop-qty-by-customer-repartition", VALUE, "changed"),
        ("shop-slow-store-changelog", VALUE, "suppress-changelog"),
        ("warehouse-owned-subscription-registration-topic", VALUE, "fk-registration"),
        ("attic-held-subscription-response-topic", VALUE, "fk-response"),
        ("attic-held-left-subscription-store-changelog", KEY, "fk-store-changelog"),
        ("shop-left-paid-join-left-shared-join-store-changelog", KEY, "outer-join-changelog"),
        ("shop-left-paid-join-left-shared-join-store-changelog", VALUE, "outer-join-changelog"),
        ("prices", VALUE, "double"),
        ("qty-slow", VALUE, "integer"),
        ("shop-by-qty-repartition", KEY, "long"),
    ],
)
def test_what_streams_writes_is_recognised(topic: str, side: str, name: str) -> None:
    reader, labels = labelled("streams", topic, Registry())
    decoded = [
        reader.read(topic, side, row[side], (), labels[side]) for row in apps.records("streams", topic)
    ]
    assert {one.format for one in decoded} - {"null"} == {name}


def test_a_schema_with_the_id_of_other_bytes_makes_no_value_of_them() -> None:
    """Of the new value 1 alone: 0, 0, 0, 1, and the flag 1, which reads as the id 257 and no content."""
    topic = "shop-qty-by-customer-repartition"
    registry = Registry(
        [Schema("other-value", 1, id_, guid_of('"null"'), "AVRO", '"null"') for id_ in range(1 << 12)]
    )
    reader, labels = labelled("streams", topic, registry)
    for row in apps.records("streams", topic):
        one = reader.read(topic, VALUE, row[VALUE], (), labels[VALUE])
        assert one.schema is None
        assert one.value.keys() == {"new", "old", "isLatest"}


@pytest.mark.parametrize(("cluster", "topic"), [one for one in TOPICS if one[0] != "connect"])
def test_cut_and_random_bytes_have_a_reason_each(cluster: str, topic: str) -> None:
    reader, labels = labelled(cluster, topic, Registry(formats=apps.formats(cluster)))
    draw = random.Random(topic)
    for side in (KEY, VALUE):
        known = {row[side] for row in apps.records(cluster, topic) if row[side]}
        some = sorted(known)[:5]
        payloads = [one[:at] for one in some for at in range(len(one))]
        payloads += [one + b"\x7f" for one in some] + [draw.randbytes(draw.randrange(80)) for _ in range(200)]
        for _ in range(100 if some else 0):  # a flipped bit, or a length that is none
            one, at = draw.choice(some), draw.randrange(80)
            other = draw.choice([b"\xff" * 4, b"\x7f" + b"\xff" * 3, bytes([draw.randrange(256)])])
            payloads.append(one[:at] + other + one[at + len(other) :])
        for payload in payloads:
            one = reader.read(topic, side, payload, (), labels[side])
            assert one.reason is None or one.reason in ERROR_CLASSES
        column = SideDecoder(reader, topic, side, labels[side]).decode(pa.array(payloads, pa.binary()))
        sound = sum(len(rows) for _, rows, _ in column.parts)
        assert sound + len(column.wrong) == len(payloads)


@pytest.mark.parametrize(
    ("flagged", "expected"),
    [
        (b"a\0", {"new": None, "old": "a", "isLatest": True}),
        (b"a\1", {"new": "a", "old": None, "isLatest": True}),
        (b"\2ab\2", {"new": "a", "old": "b", "isLatest": True}),
        (b"a\0\3", {"new": None, "old": "a", "isLatest": False}),
        (b"a\1\4", {"new": "a", "old": None, "isLatest": True}),
        (b"\2ab\0\5", {"new": "a", "old": "b", "isLatest": False}),
    ],
)
def test_each_flag_of_a_change(flagged: bytes, expected: dict[str, Any]) -> None:
    reader = PayloadReader(Registry())
    label = TopicFormat("changed", "string", "string").label
    assert reader.read("t", VALUE, flagged, (), label).value == expected


@pytest.mark.parametrize(
    ("count", "reason"), [(-1, None), (0, None), (-2, "negative_length"), (9, "huge_count")]
)
def test_a_suppressed_value_has_headers_or_none(count: int, reason: str | None) -> None:
    """-1 stands for none; of any other negative number Kafka's ``ProcessorRecordContext`` makes an error."""
    place = struct.pack(">qqi1sii", 1_700_000_000_000, 5, 1, b"t", 0, count)
    payload = place + struct.pack(">iii1sq", -1, -1, 1, b"v", 1_700_000_000_000)
    label = TopicFormat("suppress-changelog", "string", "string").label
    assert PayloadReader(Registry()).read("t", VALUE, payload, (), label).reason == reason


@pytest.mark.parametrize(
    ("serde", "fitting", "broken"),
    [
        ("long", [(at * 7919 - 9).to_bytes(8, "big", signed=True) for at in range(99)], [b"", b"1234567"]),
        ("integer", [(at * 7919 - 9).to_bytes(4, "big", signed=True) for at in range(99)], [bytes(5)]),
        ("short", [bytes([at, 255 - at]) for at in range(99)], [b"1"]),
        (
            "double",
            [struct.pack(">d", at / 7 - 3) for at in range(99)] + [b"\x7f\xf0" + bytes(6)],
            [bytes(9)],
        ),
        ("float", [struct.pack(">f", at / 7 - 3) for at in range(99)], [bytes(3)]),
        ("string", [f"{at} \u00e4".encode() for at in range(99)] + [b""], []),
        ("bytes", [bytes([at]) * at for at in range(99)], []),
    ],
)
def test_a_column_of_a_plain_serde_is_what_each_payload_is_by_itself(
    serde: str, fitting: list[bytes], broken: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = PayloadReader(Registry())
    label = TopicFormat("plain", serde, serde).label
    payloads = pa.array([b"left out", *fitting, *broken, None, *fitting[:9]], pa.binary())[1:]
    alone = [None if one is None else reader.read("t", VALUE, one, (), label) for one in payloads.to_pylist()]
    read = PayloadReader.read
    single: list[bytes] = []

    def noted(*args: Any) -> Any:
        single.append(args[3])
        return read(*args)

    monkeypatch.setattr(PayloadReader, "read", noted)
    decoder = SideDecoder(reader, "t", VALUE, label)
    found = decoder.decode(payloads)
    assert single == broken  # the others are read at once
    assert [one.decoded for one in found.wrong] == [one for one in alone if one is not None and one.reason]
    values = [None if one is None or one.reason else one.content for one in alone]
    if serde == "bytes":
        values = payloads.to_pylist()
    column = found.column(decoder.types).to_pylist()
    assert column == [float("inf") if one == "Infinity" else one for one in values]


def test_a_windowed_key_goes_around_another_serde() -> None:
    reader = PayloadReader(Registry())
    label = TopicFormat("kv-changelog", "time-windowed:long", "uuid", 1000).label
    key = (7).to_bytes(8, "big") + (60_000).to_bytes(8, "big")
    assert reader.read("t", KEY, key, (), label).value == {"key": 7, "start": 60_000, "end": 61_000}


def test_avro_inside_a_window_is_read_by_the_registry() -> None:
    registry = Registry([Schema("t-changelog-key", 1, 7, guid_of('"int"'), "AVRO", '"int"')])
    times = [1_790_000_040_000 + 60_000 * at for at in range(3)]
    keys = [b"\0\0\0\0\7\x54" + at.to_bytes(8, "big") + bytes(4) for at in times]
    rows = [{KEY: key, VALUE: b"x", "headers": None} for key in keys]
    reader = PayloadReader(registry)
    labels = topic_labels(reader, "t-changelog", rows)
    found = [reader.read("t-changelog", KEY, key, (), labels[KEY]).value for key in keys]
    assert found == [{"key": 42, "start": at, "end": None, "sequence": 0} for at in times]


@pytest.mark.parametrize(
    ("held", "words"),
    [
        ({"t": {"kind": "windows"}}, "unknown kind 'windows'"),
        ({"t": {"kind": "plain", "key": "int"}}, "unknown serde 'int'"),
        ({"t": {"kind": "plain", "keys": "long"}}, "unknown 'keys'"),
        ({"t(": "plain"}, "must be a regular expression"),
        ({"t{99999999999999999999}": "plain"}, "must be a regular expression"),
        ({"t" + "(" * 5000: "plain"}, "must be a regular expression"),
        ({"t": None}, "neither a kind nor a mapping"),
        ({"t": {"key": "time-windowed:session-windowed:long"}}, "unknown serde"),
        ({"t": 7}, "neither a kind nor a mapping"),
        ({"t": {"kind": "time-windowed", "window_size_ms": -1}}, "window_size_ms is -1"),
        ({"t": {"kind": "time-windowed", "window_size_ms": "60 s"}}, "window_size_ms is '60 s'"),
    ],
)
def test_a_wrong_file_of_formats_is_one_line(held: object, words: str) -> None:
    with pytest.raises(ValueError, match=r"^t") as raised:
        TopicFormats.parsed(held)
    assert words in str(raised.value)


@pytest.mark.parametrize("name", [None, True, 12])
def test_a_name_that_yaml_makes_no_text_of_is_refused(name: object) -> None:
    """``on: text`` is no format of the topic True."""
    with pytest.raises(ValueError, match=f"^{name}: not a text: write it in quotes$"):
        TopicFormats.parsed({name: "text"})


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "(.*)*x"])
def test_an_expression_of_nested_repetitions_takes_no_time_without_end(pattern: str) -> None:
    assert TopicFormats.parsed({pattern: "text"}).of("a" * 249) is None


@pytest.mark.parametrize(
    ("topic", "side", "payloads"),
    [
        ("mm2-offset-syncs.a.internal", VALUE, [random.Random(at).randbytes(16) for at in range(9)]),
        ("a.checkpoints.internal", KEY, [bytes(7) + bytes([at]) for at in range(9)]),
        ("heartbeats", KEY, [bytes(4)]),
        ("a-repartition", VALUE, [b"\0", b"\1"]),
        ("a-repartition", VALUE, [b"\2\0\2"]),
        ("a-subscription-store-changelog", KEY, [bytes(7) + bytes([at]) for at in range(9)]),
        ("a-subscription-response-topic", VALUE, [bytes(17), bytes(21)]),
        ("a-subscription-registration-topic", VALUE, [bytes(22)]),
        ("a-changelog", VALUE, [bytes([0, 0, 0, at, 0, 0, 0, at]) for at in range(9)]),
    ],
)
def test_other_bytes_under_the_names_of_applications_are_none_of_theirs(
    topic: str, side: str, payloads: list[bytes]
) -> None:
    rows = [{KEY: None, VALUE: None, "headers": None, side: payload} for payload in payloads]
    label = topic_labels(PayloadReader(Registry()), topic, rows)[side]
    found = TopicFormat.of_label(label)
    assert found is None or found.kind == "plain"
    assert found is None or not topic.startswith("a-")


def test_the_first_expression_that_takes_a_topic_holds() -> None:
    formats = TopicFormats.parsed({"a.*": {"kind": "plain", "value": "long"}, ".*": "text"})
    assert formats.of("abc") == TopicFormat("plain", "", "long")
    assert formats.of("cab") == TopicFormat("text")


@pytest.mark.parametrize(
    ("schema", "sent", "value"),
    [
        (
            {"type": "int32", "name": "org.apache.kafka.connect.data.Date"},
            20_000,
            {"date": 1_728_000_000_000},
        ),
        ({"type": "int32", "name": "org.apache.kafka.connect.data.Time"}, 5, {"date": 5}),
        ({"type": "int64", "name": "org.apache.kafka.connect.data.Timestamp"}, 7, {"date": 7}),
        (
            {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}},
            base64.b64encode(b"\x30\x39").decode(),
            "123.45",
        ),
        ({"type": "bytes"}, "AQI=", {"bytes": "AQI="}),
        ({"type": "array", "items": {"type": "bytes"}}, ["AQI="], [{"bytes": "AQI="}]),
        ({"type": "map", "keys": {"type": "string"}, "values": {"type": "bytes"}}, {"a": "AQI="}, None),
        ({"type": "struct", "fields": [{"type": "int8", "field": "a"}]}, {"a": 1}, {"a": 1}),
        ({"type": "struct", "fields": "broken"}, {"a": 1}, {"a": 1}),
        (
            {"type": "struct", "fields": [{"type": "int8", "field": 1}]},
            {"1": 1},
            {"1": 1},
        ),  # no text is a name
        (None, {"a": 1}, {"a": 1}),
    ],
)
def test_json_of_connect_is_read_by_its_schema(schema: Any, sent: Any, value: Any) -> None:
    payload = json.dumps({"schema": schema, "payload": sent}).encode()
    found = PayloadReader(Registry()).read("t", VALUE, payload).value
    assert found == ({"a": {"bytes": "AQI="}} if value is None else value)


_DATE = {"type": "int32", "name": "org.apache.kafka.connect.data.Date"}
_DECIMAL = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal"}


@pytest.mark.parametrize(
    ("schema", "sent"),
    [
        (_DATE, "text"),
        (_DATE, [1, 2]),
        (_DATE, True),
        ({**_DECIMAL, "parameters": {"scale": "-900000"}}, "AQ=="),
        ({**_DECIMAL, "parameters": {"scale": "900000"}}, "AQ=="),
        ({**_DECIMAL, "parameters": {"scale": "0"}}, base64.b64encode(b"\x7f" * 100_000).decode()),
        ({"type": "array", "items": {"type": "string", "default": "x" * 1000}}, [None] * 5000),
        ({"type": "array", "items": {"type": "string"}}, "text"),
        ({"type": "map", "keys": {"type": "string"}, "values": {"type": "string"}}, ["ab", "cd"]),
    ],
)
def test_a_payload_that_its_schema_of_connect_would_blow_up_stays_as_it_was_sent(
    schema: Any, sent: Any
) -> None:
    payload = json.dumps({"schema": schema, "payload": sent}).encode()
    tracemalloc.start()
    try:
        found = PayloadReader(Registry()).read("t", VALUE, payload).value
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (found, type(found)) == (sent, type(sent))
    assert most < 8 << 20


def test_ids_of_a_registry_that_is_not_there_stay_a_guess_with_a_reason() -> None:
    """Few ids with content: a typed table keeps them as errors, which a registry that comes later mends."""
    rows = [{KEY: None, VALUE: b"\0\0\0\0\7" + bytes([at] * 9), "headers": None} for at in range(30)]
    reader = PayloadReader(Registry())
    label = topic_labels(reader, "orders", rows)[VALUE]
    assert {reader.read("orders", VALUE, row[VALUE], (), label).reason for row in rows} == {"unknown_id"}
    assert topic_labels(reader, "a-store-changelog", rows)[VALUE] != label


# Of an application of 4.4: floats, of which "B@iU" reads as text, and keys of sessions by long
_FLOATS = ("4204e6bf", "4221c5cc", "415b86e0", "42406955")
_SESSIONS = (
    "000000d18c2e2800000001a1ee5665b0000001a1ee5665b0",
    "000000d18c2e2801000001a1ee56662d000001a1ee56662d",
)


@pytest.mark.parametrize(
    ("topic", "payloads"),
    [
        ("fuel-levels", _FLOATS),
        ("fuel-sessions", _SESSIONS),
        ("__transaction_state", ("00000005666c656574",)),
    ],
)
def test_other_bytes_are_no_text_and_no_ids(topic: str, payloads: tuple[str, ...]) -> None:
    rows = [{KEY: bytes.fromhex(payload), VALUE: None, "headers": None} for payload in payloads]
    reader = PayloadReader(Registry())
    label = topic_labels(reader, topic, rows)[KEY]
    decoded = [reader.read(topic, KEY, row[KEY], (), label) for row in rows]
    assert {(one.format, one.reason) for one in decoded} == {("bytes", None)}


def test_topics_of_mirrormaker_may_have_an_underscore_for_a_separator() -> None:
    """Of MirrorMaker 4.3 with ``replication.policy.separator=_``."""
    topic = "dc-east_checkpoints_internal"
    key = base64.b64decode("AA5zdGF0aWMucmVhZGVycwAOZGMtZWFzdF9vcmQudXMAAAAB")
    value = base64.b64decode("AAAAAAAAAAAAKwAAAAAAAAABAAtoYWxiIOKAkyDCvQ==")
    reader = PayloadReader(Registry())
    labels = topic_labels(reader, topic, [{KEY: key, VALUE: value, "headers": None}])
    found = reader.read(topic, KEY, key, (), labels[KEY]).value
    assert found == {"consumerGroupId": "static.readers", "topic": "dc-east_ord.us", "partition": 1}
    assert mirror.clusters("mm2-checkpoint", topic) == ("dc-east", None)
    assert mirror.source_topic(topic, "dc-east", found["topic"]) == "ord.us"
    assert mirror.clusters("mm2-offset-sync", "mm2-offset-syncs_dc_west_internal") == (None, "dc_west")
