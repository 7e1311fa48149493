"""ACLs and SCRAM users of a metadata log are in the target, as a real broker tells them; quotas by hand."""

from __future__ import annotations

import csv
import shlex
import subprocess
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from kafka_log_lake.pipelines.cli.program import main
from kafka_log_lake.udfs.values.internal.encode import metadata_record
from tests.kafka.broker import NEWEST, broker, broker_classpath, free_port
from tests.support.java import quick_java
from tests.support.logs import batch, put
from tests.support.metadata_disks import metadata_log, policy, topic
from tests.support.secured import log_in, rights, secured


def acl(number: int, kind: int, name: str, operation: int, pattern: int = 3) -> bytes:
    fields = {"id": f"{number:A<21}A", "resourceType": kind, "resourceName": name, "patternType": pattern}
    fields |= {"principal": "User:bob", "host": "*", "operation": operation, "permissionType": 3}
    return metadata_record("AccessControlEntryRecord", 0, fields)


def user(name: str) -> bytes:
    fields = {"name": name, "mechanism": 1, "salt": b"salt", "storedKey": b"s", "serverKey": b"k"}
    return metadata_record("UserScramCredentialRecord", 0, {**fields, "iterations": 5000})


def quota(name: str | None) -> bytes:
    entity = [{"entityType": "user", "entityName": name}]
    fields: dict[str, Any] = {"entity": entity, "key": "consumer_byte_rate", "value": 2048.0, "remove": False}
    return metadata_record("ClientQuotaRecord", 0, fields)


def test_security_is_restored_or_left_as_commands(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    put(disk / "t-0", 0, batch(0, base_timestamp=1_790_000_000_000))
    records = [
        *topic("t", 3, [1]),
        policy("t", "compact,delete"),
        *(acl(1, 2, "t", 3), acl(2, 2, "pre", 4, pattern=4), acl(3, 3, "group", 3)),
        *(acl(4, 4, "kafka-cluster", 8), acl(5, 7, "User:eve", 13)),
        *(user("ann"), user("bob"), quota("it's"), quota(None)),
    ]
    metadata_log(disk, records)
    passwords = tmp_path / "passwords"
    passwords.write_text("ann=secret=word\n")
    port, of_guest = free_port(), rights("TOPIC", "new.t", "CREATE", "DESCRIBE", "DESCRIBE_CONFIGS", "READ")
    settings = secured(tmp_path)
    with broker(tmp_path / "new", settings, heap="512m", release=NEWEST, secure_port=port) as target:
        words = ["--bootstrap-server", f"127.0.0.1:{port}", "--create", "only", "--rename", "t=new.t"]
        words += ["--config", str(log_in(tmp_path, "guest", "other"))]
        words += ["--security", "acls,quotas,scram", "--scram-passwords", str(passwords)]
        words += ["--state", str(tmp_path / "state"), "--report", str(tmp_path / "report"), "--cores", "1"]
        admin = AdminClient({"bootstrap.servers": target.address})
        for needed in (of_guest, rights("BROKER", "kafka-cluster", "ALTER")):
            for given in admin.create_acls([AclBinding(*right) for right in needed]).values():
                given.result()
            assert main(["restore", str(disk), *words]) == 3
            refused = [why for why in held(tmp_path).values() if "(CLUSTER_AUTHORIZATION_FAILED)" in why]
            assert len(refused) == (5 if needed is of_guest else 0)
        everything = AclBindingFilter(
            ResourceType.ANY,
            None,
            ResourcePatternType.ANY,
            "User:bob",
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        found = {(one.name, one.operation.name) for one in admin.describe_acls(everything).result()}
        assert found == {
            *(("new.t", "READ"), ("pre", "WRITE"), ("group", "READ"), ("kafka-cluster", "DESCRIBE"))
        }
        (users,) = admin.describe_user_scram_credentials(["ann"]).values()
        assert [one.iterations for one in users.result().scram_credential_infos] == [5000]
        assert len(admin.list_topics("new.t").topics["new.t"].partitions) == 3
        script = (tmp_path / "report" / "by_hand.sh").read_text()
        assert "secret" not in script
        configs = [line for line in script.splitlines() if line.startswith("kafka-configs.sh ")]
        assert len(configs) == 2
        for line in configs:
            line = line.replace(f"127.0.0.1:{port}", target.address)
            assert "Completed updating" in tool(*shlex.split(line)[1:])
        told = tool("--bootstrap-server", target.address, "--describe", "--entity-type", "users")
        assert "consumer_byte_rate=2048.0" in told
        assert "it's" in told
    assert held(tmp_path)["bob (SCRAM-SHA-256)"].startswith("the metadata has no password")
    assert sum("confluent-kafka" in why for why in held(tmp_path).values()) == 3


def held(folder: Path) -> dict[str, str]:
    """What the report says is not in the target, and why."""
    with (folder / "report" / "security.csv").open(encoding="utf-8", newline="") as file:
        return {row["name"]: row["held back"] for row in csv.DictReader(file) if row["held back"]}


def tool(*words: str) -> str:
    """Runs kafka-configs.sh."""
    java = [*quick_java(), "-cp", broker_classpath(NEWEST), "org.apache.kafka.tools.ConfigCommand"]
    done = subprocess.run([*java, *words], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr
