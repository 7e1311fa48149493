"""The vectors of ``conformance/``: Kafka's own library reads them so, and so does this project's decoder."""

from __future__ import annotations

import re
import sys

from conformance import run
from tests.support.docs import ROOT
from tools import conformance


def test_vectors_are_what_kafka_reads() -> None:
    """If this fails: python -m tools.conformance"""
    made = conformance.files()
    assert {path.name: path.read_bytes() for path in conformance.FOLDER.iterdir()} == made


def test_this_decoder_reads_them_as_kafka_does() -> None:
    vectors = run.load()
    answered = run.answers([sys.executable, "-m", "conformance.decoders.kafka_log_lake"], vectors)
    assert {name: run.difference(one, answered.get(name)) for name, one in vectors.items()} == dict.fromkeys(
        vectors, ""
    )
    page = (ROOT / "conformance" / "README.md").read_text()
    assert re.search(rf"kafka-log-lake [\d.]+ \| {len(vectors)} of {len(vectors)} ", page)


def test_the_runner_finds_what_is_wrong() -> None:
    vectors = run.load()
    sound, damaged = vectors["v2-headers"], vectors["v2-wrong-checksum"]
    right = {"records": sound["records"], "error": None}
    assert run.difference(sound, right) == ""
    assert run.difference(sound, None) == "no answer"
    assert run.difference(sound, {"records": [], "error": None}) == "0 records, expected 4"
    assert "refused" in run.difference(sound, {"records": [], "error": "no such magic"})
    changed = [{**sound["records"][0], "headers": []}, *sound["records"][1:]]
    assert run.difference(sound, {"records": changed, "error": None}).startswith("headers of offset 0")
    assert run.difference(damaged, {"records": damaged["records"], "error": None}) == "damage is not refused"
    assert run.difference(damaged, {"records": damaged["records"], "error": "checksum"}) == ""
