"""The files of a secure cluster in containers."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from cryptography import x509

from ottla.broker.config import load_broker_config
from ottla.client.local_cluster.prepare_security import main
from ottla.client.net.settings import ClientSettings

ARGUMENTS = [
    "--listener=INTERNAL",
    "--listener=EXTERNAL",
    "--inside=one:19092,two:19092",
    "--outside=localhost:9192",
    "--zookeeper=zookeeper:2281/ottla",
]


def made(folder: Path) -> int:
    """Make the files, and those of ZooKeeper in a folder beside them; return the exit code."""
    return main([str(folder), *ARGUMENTS, f"--zookeeper-folder={folder.with_name('zookeeper')}"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What the first start makes."""
    folder = tmp_path / "security"
    assert made(folder) == 0
    return folder


def test_the_certificate_is_for_the_brokers_inside_and_for_the_host(folder: Path) -> None:
    """Their names, and those of the machine whose ports lead to them."""
    certificate = x509.load_pem_x509_certificate((folder / "broker.pem").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "one", "two", "zookeeper"]


def test_a_broker_takes_its_secrets_from_the_file_and_its_place_from_the_environment(folder: Path) -> None:
    """Together they are a configuration, with a login for each listener."""
    environment = {
        "KAFKA_LISTENERS": "INTERNAL://:19092,EXTERNAL://:9092",
        "KAFKA_ADVERTISED_LISTENERS": "INTERNAL://one:19092,EXTERNAL://localhost:9192",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "INTERNAL:SASL_SSL,EXTERNAL:SASL_SSL",
        "KAFKA_INTER_BROKER_LISTENER_NAME": "INTERNAL",
        "KAFKA_ZOOKEEPER_CONNECT": "zookeeper:2281/ottla",
        "KAFKA_BROKER_ID": "1",
        "KAFKA_LOG_DIRS": str(folder),
    }
    config = load_broker_config(folder / "broker.properties", environment, [])
    assert not config.warnings
    text = (folder / "broker.properties").read_text()
    for listener in ("internal", "external"):
        assert f"listener.name.{listener}.plain.sasl.jaas.config=" in text


def test_clients_inside_and_on_the_host_have_files_of_their_own(folder: Path) -> None:
    """With the same login, and other addresses."""
    inside = ClientSettings.from_config(folder / "client.properties")
    outside = ClientSettings.from_config(folder / "host" / "client.properties")
    assert (inside.bootstrap_servers, outside.bootstrap_servers) == ("one:19092,two:19092", "localhost:9192")
    assert inside.sasl_plain_password == outside.sasl_plain_password


def test_only_the_owner_reads_what_is_secret(folder: Path) -> None:
    """In all folders."""
    for path in folder.rglob("*"):
        assert path.name == "ca.pem" or not stat.S_IMODE(path.stat().st_mode) & 0o077, path


def test_the_next_start_changes_nothing(folder: Path) -> None:
    """Clients keep their files."""
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert made(folder) == 0
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On standard error, with an exit code."""
    (tmp_path / "file").touch()
    assert made(tmp_path / "file") == 1
    assert f"Cannot use {tmp_path / 'file'}" in capsys.readouterr().err
