"""Makes ``tests/data/shop``, the log directory of a small shop: ``python -m tests.kafka.shop``.

A real broker (``tests.kafka.broker``) writes it, and librdkafka is its client. Schemas are framed as
Confluent's serializers do, and ``_schemas`` has the records that its registry writes. One bit is flipped.
"""

from __future__ import annotations

import io
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro

from tests.kafka.broker import broker, with_tools

ROOT = Path(__file__).resolve().parents[2]
SHOP = ROOT / "tests" / "data" / "shop"
# Four days that end when the broker writes: markers of transactions have its time
FIRST = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=97)
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.min.isr": "1",
    # A coordinator that never ends what timed out
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "3600000",
    "log.retention.ms": "-1",  # the records are older than the broker
    "log.initial.task.delay.ms": "100",
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.dedupe.buffer.size": "4194304",
}
_DAMAGED = ("orders-1", 3)  # a partition, and which of its batches

_MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
_TIME = {"type": "long", "logicalType": "timestamp-millis"}


def _record(name: str, /, **fields: Any) -> dict[str, Any]:
    """Returns an Avro schema of a record. fields: the type of each."""
    return {
        "type": "record",
        "name": name,
        "namespace": "shop",
        "fields": [{"name": one, "type": kind} for one, kind in fields.items()],
    }


_OPTIONAL = ["null", "string"]
_ORDER = _record(
    "Order",
    order_id="long",
    customer_id="long",
    item="string",
    quantity="int",
    amount=_MONEY,
    placed_at=_TIME,
)
_PAYMENT = _record("Payment", order_id="long", amount=_MONEY, method="string", paid_at=_TIME)
_CUSTOMER = _record(
    "Customer", id="long", name="string", city="string", newsletter="boolean", phone=_OPTIONAL
)
_ROW = _record("Value", id="int", name="string", price=_MONEY, stock="int")
_SOURCE = _record("Source", version="string", connector="string", name="string", ts_ms="long", table="string")


def _envelope() -> dict[str, Any]:
    """Returns the schema of Debezium's change events of the table ``products``."""
    schema = _record(
        "Envelope", before=["null", _ROW], after=["null", "shop.Value"], source=_SOURCE, op="string"
    )
    schema["fields"].append({"name": "ts_ms", "type": ["null", "long"], "default": None})
    return {**schema, "namespace": "shop.public.products", "connect.name": "shop.public.products.Envelope"}


SCHEMAS = {
    "orders-value": _ORDER,
    "payments-value": _PAYMENT,
    "customers-value": _CUSTOMER,
    "shop.public.products-key": _record("Key", id="int"),
    "shop.public.products-value": _envelope(),
}
_TOWNS = ("Lyon", "Porto", "Gdansk", "Leeds", "Turin", "Malmo")
_NAMES = ("Ana", "Bo", "Chen", "Dana", "Elif", "Femi", "Goran", "Hana")
_ITEMS = (("teapot", "24.90"), ("kettle", "39.00"), ("cup", "6.50"), ("tray", "18.75"), ("green tea", "9.20"))


@dataclass
class Shop:
    """What the clients of a broker need, and the random choices, the same in each run."""

    kafka: Any
    address: str
    choose: random.Random = field(default_factory=lambda: random.Random(58))
    unfinished: list[Any] = field(default_factory=list)

    def avro(self, subject: str, value: dict[str, Any] | None) -> bytes | None:
        """Returns a value in Confluent's framing: 0, the schema's id in 4 bytes, Avro."""
        if value is None:
            return None
        out = io.BytesIO()
        number = 1 + list(SCHEMAS).index(subject)
        out.write(b"\0" + number.to_bytes(4, "big"))
        fastavro.schemaless_writer(out, fastavro.parse_schema(SCHEMAS[subject]), value)
        return out.getvalue()

    def producer(self, **settings: Any) -> Any:
        given = {name.replace("_", "."): value for name, value in settings.items()}
        return self.kafka.Producer({"bootstrap.servers": self.address, "enable.idempotence": True, **given})

    def create(self, topics: dict[str, tuple[int, dict[str, str]]]) -> None:
        """topics: partitions and settings of each."""
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        admin = AdminClient({"bootstrap.servers": self.address})
        new = [NewTopic(name, count, 1, config=given) for name, (count, given) in topics.items()]
        for done in admin.create_topics(new).values():
            done.result()


def at(hours: float) -> datetime:
    """Returns a time of the shop, after its first morning."""
    return FIRST + timedelta(hours=hours)


def ms(when: datetime) -> int:
    return round(when.timestamp() * 1000)


def write(producer: Any, topic: str, records: Iterable[tuple[Any, ...]], batch: int = 20) -> None:
    """Sends records of key, value, time and perhaps headers; a flush ends a batch."""
    for number, (key, value, when, *headers) in enumerate(records, 1):
        producer.produce(topic, value, key, timestamp=ms(when), headers=headers[0] if headers else None)
        if number % batch == 0:
            producer.flush()
    producer.flush()


def schemas(shop: Shop) -> None:
    def records() -> Iterator[tuple[Any, ...]]:
        for number, (subject, schema) in enumerate(SCHEMAS.items(), 1):
            key = {"keytype": "SCHEMA", "subject": subject, "version": 1, "magic": 1}
            text = json.dumps(schema, separators=(",", ":"))
            value = {"subject": subject, "version": 1, "id": number, "schema": text, "deleted": False}
            yield json.dumps(key).replace(" ", ""), json.dumps(value), FIRST

    write(shop.producer(), "_schemas", records(), batch=1)


def orders(shop: Shop, count: int) -> list[dict[str, Any]]:
    """Writes orders of four days, and returns them."""
    made = []
    for number in range(count):
        item, price = shop.choose.choice(_ITEMS)
        quantity = shop.choose.randint(1, 6)
        made.append(
            {
                "order_id": 1000 + number,
                "customer_id": shop.choose.randint(1, 120),
                "item": item,
                "quantity": quantity,
                "amount": Decimal(price) * quantity,
                "placed_at": at(96 * number / count),
            }
        )
    headers = [("source", b"web")]
    records = ((f"{o['order_id']}", shop.avro("orders-value", o), o["placed_at"], headers) for o in made)
    write(shop.producer(compression_type="zstd", linger_ms=50), "orders", records, batch=100)
    return made


def payments(shop: Shop, made: list[dict[str, Any]]) -> None:
    """Pays orders in transactions of twenty; every ninth is aborted, and the last is left open."""
    producer = shop.producer(transactional_id="till-1", compression_type="lz4")
    producer.init_transactions()
    for number, start in enumerate(range(0, len(made), 20)):
        producer.begin_transaction()
        write(producer, "payments", _paid(shop, made[start : start + 20]))
        if number % 9 == 8:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    left = shop.producer(transactional_id="till-2", transaction_timeout_ms=1000)
    left.init_transactions()
    left.begin_transaction()
    write(left, "payments", _paid(shop, made[-15:-10]))
    shop.unfinished.append(left)  # the broker stops before this transaction ends
    time.sleep(2)
    producer.begin_transaction()  # what consumers do not get, for the open one stands before it
    write(producer, "payments", _paid(shop, made[-10:]))
    producer.commit_transaction()


def _paid(shop: Shop, made: list[dict[str, Any]]) -> Iterator[tuple[Any, ...]]:
    for order in made:
        when = order["placed_at"] + timedelta(minutes=shop.choose.randint(1, 40))
        method = shop.choose.choice(("card", "transfer", "voucher"))
        payment = {
            "order_id": order["order_id"],
            "amount": order["amount"],
            "method": method,
            "paid_at": when,
        }
        yield f"{order['order_id']}", shop.avro("payments-value", payment), when


def customers(shop: Shop) -> None:
    """Each is written up to five times, and some are deleted: the cleaner keeps the last value of each."""

    def records() -> Iterator[tuple[Any, ...]]:
        for number in range(420):
            customer = number + 1 if number < 120 else shop.choose.randint(1, 120)
            value = {
                "id": customer,
                "name": shop.choose.choice(_NAMES),
                "city": shop.choose.choice(_TOWNS),
                "newsletter": shop.choose.random() < 0.5,
                "phone": None if number % 3 else f"+00 555 {number:04d}",
            }
            gone = number > 380 and number % 10 == 0
            yield f"{customer}", shop.avro("customers-value", None if gone else value), at(96 * number / 420)

    write(shop.producer(), "customers", records())


def products(shop: Shop) -> None:
    """Debezium's events of a table: a snapshot, updates, a new row and a deletion with its tombstone."""
    rows: dict[int, dict[str, Any]] = {
        i: {"id": i, "name": n, "price": Decimal(p), "stock": 40} for i, (n, p) in enumerate(_ITEMS, 1)
    }
    sent: list[tuple[Any, ...]] = []

    def event(op: str, row: int, before: Any, after: Any) -> None:
        when = at(len(sent) * 1.5)
        source = {"version": "2.7.0.Final", "connector": "postgresql", "name": "shop", "table": "products"}
        value = {"before": before, "after": after, "source": {**source, "ts_ms": ms(when)}, "op": op}
        key = shop.avro("shop.public.products-key", {"id": row})
        value["ts_ms"] = ms(when)
        sent.append((key, shop.avro("shop.public.products-value", value), when))

    for number, row in rows.items():
        event("r", number, None, row)
    for _ in range(50):
        number = shop.choose.choice(list(rows))
        before = rows[number]
        rows[number] = {**before, "stock": max(0, before["stock"] - shop.choose.randint(1, 5))}
        event("u", number, before, rows[number])
    event("c", 6, None, {"id": 6, "name": "sugar", "price": Decimal("3.10"), "stock": 100})
    event("d", 4, rows[4], None)
    sent.append((sent[-1][0], None, sent[-1][2]))
    write(shop.producer(), "shop.public.products", sent)


def views(shop: Shop) -> None:
    """Visits of pages, in JSON without a schema."""

    def records() -> Iterator[tuple[Any, ...]]:
        for number in range(4000):
            when = at(96 * number / 4000)
            customer = shop.choose.randint(1, 120)
            page = shop.choose.choice(("/", "/tea", "/cart", "/help"))
            value = {"customer": customer, "page": page, "ms": shop.choose.randint(40, 900)}
            yield f"{customer}", json.dumps(value), when

    write(shop.producer(compression_type="snappy"), "page_views", records(), batch=200)


def groups(shop: Shop) -> None:
    """Two groups read the orders: one all of them, one stops early and lags."""
    for group, most in (("shipping", None), ("billing", 900)):
        given = {"bootstrap.servers": shop.address, "group.id": group, "auto.offset.reset": "earliest"}
        consumer = shop.kafka.Consumer({**given, "enable.auto.commit": False})
        consumer.subscribe(["orders"])
        read = 0
        until = time.monotonic() + 20
        while read < (most or 1500) and time.monotonic() < until:
            read += len(consumer.consume(30, timeout=1))
        consumer.commit(asynchronous=False)
        consumer.close()


def copy_logs(logs: Path, folder: Path) -> None:
    """Copies what a broker keeps, without locks and logs of nothing."""
    shutil.rmtree(folder, ignore_errors=True)
    left_out = ("*.lock", ".lock", "*.deleted", "*.cleaned", "cleaner-offset-checkpoint")
    shutil.copytree(logs, folder, ignore=shutil.ignore_patterns(*left_out))


def damage(folder: Path) -> None:
    """Flips a bit in the records of one batch."""
    name, number = _DAMAGED
    (segment,) = (folder / name).glob("*.log")
    data = bytearray(segment.read_bytes())
    position = 0
    for _ in range(number):
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    data[position + 200] ^= 0x10
    segment.write_bytes(data)


def compacted(logs: Path, topic: str) -> bool:
    """Whether the cleaner has been through a topic."""
    text = logs / "cleaner-offset-checkpoint"
    return text.exists() and topic in text.read_text()


def wait_for(what: Callable[[], bool], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not what():
        if time.monotonic() > until:
            raise RuntimeError("the broker did not do it in time")
        time.sleep(0.2)


def main() -> None:
    """Starts the broker, writes, stops it, and copies its files."""
    with tempfile.TemporaryDirectory() as scratch:
        path = with_tools(Path(scratch) / "tools")["PYTHONPATH"]
        sys.path.append(path)
        import confluent_kafka

        with broker(Path(scratch) / "broker", SETTINGS) as running:
            shop = Shop(confluent_kafka, running.address)
            often = {
                "cleanup.policy": "compact",
                "min.cleanable.dirty.ratio": "0.01",
                "segment.ms": "86400000",
            }
            shop.create(
                {
                    "_schemas": (1, {"cleanup.policy": "compact"}),
                    "orders": (3, {}),
                    "payments": (2, {}),
                    "customers": (1, often),
                    "shop.public.products": (1, {}),
                    "page_views": (2, {}),
                }
            )
            schemas(shop)
            payments(shop, orders(shop, 1500)[:1200])
            customers(shop)
            products(shop)
            views(shop)
            groups(shop)
            wait_for(lambda: compacted(running.logs, "customers"))
            running.stop()
            copy_logs(running.logs, SHOP)
    damage(SHOP)
    print(f"{sum(one.stat().st_size for one in SHOP.rglob('*') if one.is_file()):,} bytes in {SHOP}")


if __name__ == "__main__":
    main()
