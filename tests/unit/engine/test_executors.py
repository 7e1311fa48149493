"""What a job makes of what the executors of a cluster say they have; how it asks them: test_standalone."""

from __future__ import annotations

from dataclasses import replace

from kafka_log_lake.pipelines.engine.executors import describe, find_problem
from kafka_log_lake.udfs.spark.preflight import Executor

VERSIONS = {"pyarrow": "26.0.1", "numba": "0.68.1", "kafka-log-lake": "0.2.0"}
ONE = Executor("node-1", "/work/app/0", "3.11.7", VERSIONS, {}, "11d3e48e", "/work/app/0/environment/lib")
OTHER = replace(ONE, host="node-2", folder="/work/app/1", place="/work/app/1/environment/lib")


def test_those_that_have_the_same_are_one_line() -> None:
    what = "Python 3.11.7, pyarrow 26.0.1, numba 0.68.1, kafka-log-lake 0.2.0 (code 11d3e48e) from"
    assert list(describe([ONE, OTHER])) == [f"2 executors on node-1, node-2: {what} ./environment/lib"]
    installed = replace(OTHER, place="/opt/python/lib", versions={**VERSIONS, "numba": "0.65.0"})
    assert list(describe([ONE, installed])) == [
        f"1 executor on node-2: {what.replace('0.68.1', '0.65.0')} /opt/python/lib",
        f"1 executor on node-1: {what} ./environment/lib",
    ]
    bare = replace(ONE, versions={}, code="", place="", broken={"numpy": "No module named 'numpy'"})
    assert list(describe([bare])) == [
        "1 executor on node-1: Python 3.11.7, pyarrow missing, numba missing, no kafka-log-lake"
    ]


def test_other_code_than_the_driver_s_is_a_problem() -> None:
    assert find_problem([ONE, OTHER], "11d3e48e") == ""
    problem = find_problem([ONE, replace(OTHER, code="0badc0de")], "11d3e48e")
    assert "code 0badc0de on node-2, 11d3e48e in the driver" in problem
    assert "\n" not in problem
