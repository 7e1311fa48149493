"""A broker with TLS, users and an authorizer, and what a client of it needs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import confluent_kafka.admin as kafka
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.support.restored import BROKER


def certificates(folder: Path) -> None:
    """A key with its own certificate for 127.0.0.1: broker.pem for a broker, ca.pem for a client."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    begin = datetime(2020, 1, 1, tzinfo=UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + timedelta(days=36_500))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "broker.pem").write_bytes(secret + made)
    (folder / "ca.pem").write_bytes(made)


def secured(folder: Path) -> dict[str, str]:
    """Settings of a broker with TLS, users and an authorizer, whose certificates lie in the folder."""
    certificates(folder)
    users = ' user_me="s3cret;word" user_guest="other"'
    return {
        **BROKER,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "broker.pem"),
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain."
        f"PlainLoginModule required{users};",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:me",
    }


def rights(kind: str, name: str, *operations: str, pattern: str = "LITERAL") -> list[tuple[Any, ...]]:
    """The words of ACLs for the user guest."""
    place = (kafka.ResourceType[kind], name, kafka.ResourcePatternType[pattern], "User:guest", "*")
    return [(*place, kafka.AclOperation[one], kafka.AclPermissionType.ALLOW) for one in operations]


def log_in(folder: Path, user: str, password: str) -> Path:
    """The properties of a client with the words of a user."""
    file = folder / "client.properties"
    jaas = f'org.apache.kafka.X required username="{user}" password="{password}";'
    file.write_text(
        f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nssl.ca.location={folder}/ca.pem\n"
        f"sasl.jaas.config={jaas}\n"
    )
    return file
