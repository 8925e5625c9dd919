"""Planted passwords and keys show nowhere but where they were planted."""

from __future__ import annotations

import base64
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import confluent_kafka.admin
import pytest
from kazoo.client import KazooClient  # type: ignore[import-untyped]
from tests.interop.security.clients import OwnClient, librdkafka_options
from tests.interop.security.secure_broker import KEYSTORE_PASSWORD, PASSWORD, SecureBroker

from ottla.client.admin.admin import Admin
from ottla.client.admin.results import ConfigResource
from ottla.protocol.config_resources import ConfigResourceType

# The stubs know less than the module.
api: Any = confluent_kafka.admin

DEADLINE_S: Final = 60.0
PLANTED_LATER: Final = "planted-dynamic-91bd"
PAGES: Final = ("/metrics", "/health/live", "/health/ready", "/groups", "/")


@pytest.fixture
def secrets(secure_broker: SecureBroker) -> list[bytes]:
    """What must not show: passwords, also as base64 has them, tokens, and the bodies of private keys."""
    passwords = [PASSWORD, KEYSTORE_PASSWORD, PLANTED_LATER]
    keys = [secure_broker.inline.private_key_pem.bytes(), secure_broker.certificates.keystore.read_bytes()]
    bodies = [key.splitlines()[1] for key in keys]
    assert all(len(body) > 40 for body in bodies)
    encoded = [base64.b64encode(password.encode()).rstrip(b"=")[:-1] for password in passwords]
    # All tokens begin alike.
    token = secure_broker.tokens.token().partition(".")[0]
    return [*(password.encode() for password in passwords), *encoded, *bodies, token.encode()]


@pytest.fixture
def used(secure_broker: SecureBroker) -> SecureBroker:
    """The broker, after its secrets were used: to come in, in vain, and to be changed."""
    client = OwnClient()
    for mechanism in client.mechanisms:
        client.exchange(secure_broker.access("SASL_SSL", mechanism=mechanism), "secrets", mechanism.encode())
    told = client.refusal(secure_broker.access("SASL_SSL", mechanism="PLAIN", user=PLANTED_LATER))
    told += client.refusal(secure_broker.access("SASL_SSL", mechanism="PLAIN", password=PLANTED_LATER))
    assert PLANTED_LATER not in told
    assert PASSWORD not in told
    return secure_broker


def test_logs_and_pages_show_none(used: SecureBroker, secrets: list[bytes]) -> None:
    """Neither the broker's log with all its options, nor a page of the HTTP port."""
    shown = {"log": used.log.read_bytes()}
    for page in PAGES:
        shown[page] = _page(used.http + page)

    for secret in secrets:
        assert [name for name, text in shown.items() if secret in text] == [], secret


def test_no_file_of_the_broker_but_its_options_holds_one(used: SecureBroker, secrets: list[bytes]) -> None:
    """Its log, its checkpoints, its partitions."""
    planted = {used.properties, used.certificates.keystore}
    files = [path for path in used.folder.rglob("*") if path.is_file() and path not in planted]
    assert used.log in files
    for path in files:
        content = path.read_bytes()
        assert [secret for secret in secrets if secret in content] == [], path


def test_no_process_shows_one(used: SecureBroker, secrets: list[bytes]) -> None:
    """In the line of its command, or in the broker's environment."""
    shown = [_read(path) for path in Path("/proc").glob("[0-9]*/cmdline")]
    shown.append(_read(Path(f"/proc/{used.pid}/environ")))
    assert any(b"ottla.broker" in line for line in shown)
    for secret in secrets:
        assert not any(secret in line for line in shown), secret


def test_nobody_else_reads_the_files_of_the_broker(used: SecureBroker) -> None:
    """Nor what is left of a crash: it leaves nothing."""
    modes = {path: path.stat().st_mode & 0o077 for path in used.log_dir.rglob("*")}
    assert modes
    assert {path: mode for path, mode in modes.items() if mode} == {}
    assert "Max core file size        0                    0 " in Path(f"/proc/{used.pid}/limits").read_text()


async def test_described_configs_show_none(used: SecureBroker, secrets: list[bytes]) -> None:
    """Neither to confluent-kafka nor to our client; what was set is there, without its value."""
    admin = api.AdminClient(librdkafka_options(used.access("SASL_SSL")))
    resource = api.ConfigResource(api.ResourceType.BROKER, str(used.broker_id))
    (described,) = admin.describe_configs([resource], request_timeout=DEADLINE_S).values()
    entries: dict[str, Any] = described.result(DEADLINE_S)
    sensitive = {name: entry.value for name, entry in entries.items() if entry.is_sensitive}
    assert "listener.name.sasl_ssl.plain.sasl.jaas.config" in sensitive
    assert set(sensitive.values()) == {None}
    shown = repr([(entry.name, entry.value, entry.synonyms) for entry in entries.values()])
    shown += repr(await _described(used))
    for secret in secrets:
        assert secret not in shown.encode(), secret


def test_a_secret_is_not_set_through_zookeeper(used: SecureBroker) -> None:
    """It is refused, and does not show in the refusal."""
    option = "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config"
    login = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="b" password="{PLANTED_LATER}";'
    admin = api.AdminClient(librdkafka_options(used.access("SASL_SSL")))
    entry = api.ConfigEntry(option, login, incremental_operation=api.AlterConfigOpType.SET)
    resource = api.ConfigResource(api.ResourceType.BROKER, str(used.broker_id), incremental_configs=[entry])
    (altered,) = admin.incremental_alter_configs([resource], request_timeout=DEADLINE_S).values()
    said = repr(altered.exception(DEADLINE_S))
    assert "not through ZooKeeper" in said
    assert PLANTED_LATER not in said + used.output()


def test_zookeeper_holds_none_in_the_clear(used: SecureBroker, secrets: list[bytes]) -> None:
    """Neither the name nor the data of any node; of passwords for SCRAM there are hashes."""
    nodes = dict(_nodes(used.zookeeper))
    assert b"stored_key=" in nodes["/config/users/alice"]
    for path, data in nodes.items():
        assert [secret for secret in secrets if secret in path.encode() or secret in data] == [], path


def _page(url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=DEADLINE_S) as response:
            return bytes(response.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.read()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""  # the process has ended


async def _described(broker: SecureBroker) -> Any:
    access = broker.access("SASL_SSL")
    async with Admin(**OwnClient().options(access)) as admin:
        return await admin.describe_configs([ConfigResource(ConfigResourceType.BROKER, str(broker.broker_id))])


def _nodes(connect: str) -> Iterator[tuple[str, bytes]]:
    client = KazooClient(hosts=connect)
    client.start(timeout=DEADLINE_S)
    try:
        waiting = ["/"]
        while waiting:
            path = waiting.pop()
            yield path, client.get(path)[0]
            waiting += [f"{path.rstrip('/')}/{child}" for child in client.get_children(path)]
    finally:
        client.stop()
        client.close()
