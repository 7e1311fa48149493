"""Typed values in Spark: the same tables as in processes, the functions, and the data source."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from deltalake import DeltaTable

from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.dataframes.register import register_views
from kafka_log_lake.pipelines.dataframes.source import KafkaLogSource
from kafka_log_lake.pipelines.decode_batches import run
from tests.feature.decode_values.test_app_tables import check_table
from tests.support import apps_corpus as apps
from tests.support import typed_corpus as corpus
from tests.unit.values.test_payloads import same

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_tables_and_functions_in_spark_give_what_was_sent(spark: SparkSession, tmp_path: Path) -> None:
    corpus.copy(("_schemas", "avro-evolution", "err-pb"), tmp_path / "logs")
    lake = str(tmp_path / "lake")
    summary = run(spark, Settings(source=(str(tmp_path / "logs"),), lake=lake, typed=True))
    sent = {(line["partition"], line["offset"]): line for line in corpus.oracle("avro-evolution")}
    wrong = sum("error" in line for line in corpus.oracle("err-pb"))
    assert summary.typed is not None
    assert {one["topic"]: (one["rows"], one["errors"]) for one in summary.typed} == {
        "avro-evolution": (len(sent), 0),
        "err-pb": (len(corpus.oracle("err-pb")), wrong),
    }
    for row in DeltaTable(f"{lake}/typed/avro-evolution").to_pyarrow_table().to_pylist():
        line = sent[row["partition"], row["offset"]]
        assert row["value"]["target"] == line["value_as_latest"]["target"]
    statement = """SELECT r.partition, r.offset, kafka_value(r.value, r.topic) AS a, t.value.target AS target,
        avro_to_json(r.value, t.value_schema_id) AS b, schema_of(t.value_schema_id) AS schema
        FROM records r JOIN `typed.avro-evolution` t ON r.partition = t.partition AND r.offset = t.offset
        WHERE r.topic = 'avro-evolution'"""
    register_views(spark, lake, statement)
    rows = spark.sql(statement).collect()
    assert len(rows) == len(sent)
    for row in rows:
        line = sent[row["partition"], row["offset"]]
        assert same(json.loads(row["a"]), line["value"])
        assert same(json.loads(row["b"]), line["value"])
        assert row["target"] == line["value_as_latest"]["target"]
        assert json.loads(row["schema"])["type"] == "record"


def test_topics_of_applications_are_the_same_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    topics = ("shop-by-qty-windows-changelog", "shop-slow-store-changelog", "qty-slow")
    lake, formats = str(tmp_path / "lake"), tmp_path / "formats.yml"
    formats.write_text(json.dumps(apps.said("streams")))
    source = (str(apps.DATA / "streams"),)
    named = "|".join(topics)
    run(spark, Settings(source=source, lake=lake, typed=True, topics=named, formats=str(formats)))
    for topic in topics:
        check_table("streams", topic, DeltaTable(f"{lake}/typed/{topic}").to_pyarrow_table().to_pylist())


def test_the_data_source_reads_one_topic_typed(spark: SparkSession) -> None:
    spark.dataSource.register(KafkaLogSource)
    read = spark.read.format("kafka_log").option("typed", "true").option("topics", "err-avro")
    sent = {(line["partition"], line["offset"]): line for line in corpus.oracle("err-avro")}
    rows = read.load(str(corpus.DATA)).select("partition", "offset", "value", "value_error").collect()
    assert {(row["partition"], row["offset"]) for row in rows} == sent.keys()
    for row in rows:
        line = sent[row["partition"], row["offset"]]
        assert row["value_error"] == line.get("error")
        assert (row["value"] is None) == ("error" in line)


def test_spark_makes_a_variant_of_the_text_of_json(spark: SparkSession, tmp_path: Path) -> None:
    corpus.copy(("_schemas", "json-schema"), tmp_path / "logs")
    lake = str(tmp_path / "lake")
    run(spark, Settings(source=(str(tmp_path / "logs"),), lake=lake, typed=True))
    statement = """SELECT partition, offset, to_json(parse_json(value)) AS whole,
        parse_json(value):width AS width FROM `typed.json-schema` WHERE value IS NOT NULL"""
    register_views(spark, lake, statement)
    rows = {(row["partition"], row["offset"]): row for row in spark.sql(statement).collect()}
    sent = {(line["partition"], line["offset"]): line for line in corpus.oracle("json-schema")}
    assert rows.keys() == {place for place, line in sent.items() if line.get("value") is not None}
    for place, row in rows.items():
        value = sent[place]["value"]
        assert json.loads(row["whole"]) == value
        assert json.loads(str(row["width"])) == value["width"]
