"""``restore`` by a user with the rights that its page lists, who loses some of them meanwhile."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import confluent_kafka.admin as kafka

from tests.kafka.broker import NEWEST, broker, client, free_port
from tests.support.cluster import ROOT
from tests.support.logs import put
from tests.support.restored import commit, made_log, transactions, wait_for_first_transaction
from tests.support.secured import log_in, rights, secured
from tests.support.segment_maker import Batch

OF_TOPIC = "allow the user of --config Describe, Read, Write and DescribeConfigs of the topic"
OF_IDS = "allow the user of --config Describe and Write of the transactional id kafka-log-lake-restore-"
STEPS = ("listing: ", "decoding: ", "warning: ", "continuing: ", "writing: ")


def test_a_right_that_is_taken_away_ends_it_and_it_continues_once_it_is_back(tmp_path: Path) -> None:
    rows = made_log(tmp_path / "logs")
    record, at = commit("readers", "made", 0, 4_000, rows[0][0])
    put(tmp_path / "logs" / "__consumer_offsets-0", 0, Batch((record,), base_timestamp=at).encode())
    port, state = free_port(), tmp_path / "state"
    words = [sys.executable, "-m", "kafka_log_lake", "restore", str(tmp_path / "logs"), "--create", "yes"]
    words += ["--bootstrap-server", f"127.0.0.1:{port}", "--state", str(state), "--cores", "1"]
    words += ["--max-bytes-per-second", "60000", "--config", str(log_in(tmp_path, "guest", "other"))]
    topic = rights("TOPIC", "made", "DESCRIBE", "DESCRIBE_CONFIGS", "READ", "WRITE", "CREATE")
    (write,) = rights("TOPIC", "made", "WRITE")
    ids = rights("TRANSACTIONAL_ID", "kafka-log-lake-restore-", "DESCRIBE", "WRITE", pattern="PREFIXED")
    group = rights("GROUP", "readers", "DESCRIBE", "READ")
    settings = secured(tmp_path)
    with broker(tmp_path / "b", settings, heap="512m", release=NEWEST, secure_port=port) as one:
        admin = kafka.AdminClient({"bootstrap.servers": one.address})
        for taken, advice in (([write], OF_TOPIC), (topic, OF_TOPIC), (ids, OF_IDS), ([], "")):
            allowed = [kafka.AclBinding(*right) for right in (*topic, *ids, *group)]
            for given in admin.create_acls(allowed).values():
                given.result()
            before = transactions(state)
            process = subprocess.Popen(words, cwd=ROOT, stderr=subprocess.PIPE, text=True)
            try:
                wait_for_first_transaction(state, before)
                filters = [kafka.AclBindingFilter(*right) for right in taken]
                for removed in admin.delete_acls(filters).values() if filters else ():
                    removed.result()
                said = process.communicate(timeout=180)[1]
            finally:
                process.kill()
            if not taken:
                assert process.returncode == 0, said
                continue
            assert process.returncode == 2, said
            (line,) = [line for line in said.splitlines() if not line.startswith(STEPS)]
            assert line.startswith("error: made-0 can't be written to made: ")
            assert advice in line
        with client(one.address) as judge:
            assert [row[1:4] for row in judge.read_timed("made", 0, committed=True)] == rows
        for removed in admin.delete_acls([kafka.AclBindingFilter(*right) for right in group]).values():
            removed.result()
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 3, done.stderr
        assert "held back  readers: 1 partition: the target: " in done.stdout
        assert "(GROUP_AUTHORIZATION_FAILED)" in done.stdout
