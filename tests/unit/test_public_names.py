"""The public names of the package and their parameters: what scripts of users hold."""

from __future__ import annotations

import inspect
import pickle
import re

import pytest

import kafka_log_lake
from kafka_log_lake.pipelines.cli.errors import LakeBusy

# function -> its parameters, in order; those after * by name alone
FUNCTIONS = {
    "connect": "lake at log",
    "decode": "spark settings",
    "decode_folder": "path * topics exclude_topics topic partition columns committed on_damage typed",
    "decode_frame": "df content topic partition position segment table columns on_damage "
    "* max_batch_uncompressed quarantine_content_bytes",
    "decode_segment": "path * start window_bytes max_batch_uncompressed columns committed on_damage",
    "decode_segments": "spark source columns **settings",
    "find": "path * lake topics exclude_topics topic committed limit only trust_partitioner context "
    "superseded include_deleted cores max_batch_uncompressed tier tier_key on_unsearched **conditions",
    "get_session": "settings * only_plans",
    "ingest": "spark settings",
    "read_segment": "path * start window_bytes max_batch_uncompressed columns committed on_damage "
    "typed topic",
    "register": "spark lake log at * views",
    "scan": "settings",
}
CLASSES = {
    *("CostSettings", "DamageError", "DamageWarning", "Findings", "JobError", "Settings", "Summary"),
    "UserError",
}


def parameters(name: str) -> str:
    """The parameters of a public function as FUNCTIONS writes them."""
    words: list[str] = []
    for parameter in inspect.signature(getattr(kafka_log_lake, name)).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in words:
            words.append("*")
        words.append(("**" if parameter.kind is parameter.VAR_KEYWORD else "") + parameter.name)
    return " ".join(words)


def test_the_public_names_are_these() -> None:
    assert {*kafka_log_lake.__all__} == {*FUNCTIONS, *CLASSES}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_their_parameters_are_these(name: str) -> None:
    assert parameters(name) == FUNCTIONS[name]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_docstring_has_sections_and_names_each_parameter(name: str) -> None:
    text = inspect.getdoc(getattr(kafka_log_lake, name)) or ""
    section = re.search(r"^Parameters\n-+\n(.*?)(?:\n\n|\Z)", text, re.MULTILINE | re.DOTALL)
    assert section is not None
    heads = re.findall(r"^([\w, ]+):", section[1], re.MULTILINE)
    documented = {word.strip() for head in heads for word in head.split(",")}
    assert documented == {*re.findall(r"\w+", FUNCTIONS[name])}
    assert re.search(r"^Raises\n-+\n", text, re.MULTILINE)


@pytest.mark.parametrize("name", ["DamageError", "UserError"])
def test_errors_have_one_root_and_an_exit_code(name: str) -> None:
    error = getattr(kafka_log_lake, name)
    assert issubclass(error, kafka_log_lake.JobError)
    assert f"exit code {error.exit_code}" in (error.__doc__ or "")


def test_damage_is_a_value_error_too() -> None:
    assert issubclass(kafka_log_lake.DamageError, ValueError)


def test_an_error_of_a_worker_is_the_same_in_the_driver() -> None:
    busy = LakeBusy("/lake", "host:7")
    back = pickle.loads(pickle.dumps(busy))
    assert (str(back), back.what) == (str(busy), "another run is writing to /lake (host:7)")
