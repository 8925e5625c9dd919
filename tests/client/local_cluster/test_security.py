"""The certificates, passwords and files of a secure cluster."""

from __future__ import annotations

import ssl
import stat
from pathlib import Path

import pytest

from ottla.client.local_cluster.errors import ClusterError
from ottla.client.local_cluster.security import ClusterSecurity
from ottla.client.net.settings import ClientSettings


@pytest.fixture
def made(tmp_path: Path) -> ClusterSecurity:
    """What a first start makes."""
    made = ClusterSecurity(tmp_path / "security")
    made.prepare("127.0.0.1:9092")
    return made


def test_only_the_owner_reads_what_is_secret(made: ClusterSecurity) -> None:
    """Certificates are for everybody, all other files are not."""
    assert stat.S_IMODE(made.folder.stat().st_mode) == 0o700
    for file in made.folder.iterdir():
        assert file == made.authority or stat.S_IMODE(file.stat().st_mode) == 0o600, file


def test_clients_believe_the_brokers_by_name_and_by_address(made: ClusterSecurity) -> None:
    """A handshake between the files of both sides works, and fails for a name that is not the brokers'."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(made.broker_options()["ssl.keystore.location"])
    client = ssl.create_default_context(cafile=str(made.authority))
    for name in ("localhost", "127.0.0.1", "::1"):
        _shake_hands(client, server, name)
    with pytest.raises(ssl.SSLCertVerificationError):
        _shake_hands(client, server, "elsewhere")


def test_all_is_kept_and_clients_are_told_new_ports(made: ClusterSecurity) -> None:
    """The next start leaves keys and passwords alone."""
    before = {file.name: file.read_bytes() for file in made.folder.iterdir()}
    made.prepare("127.0.0.1:9999")
    after = {file.name: file.read_bytes() for file in made.folder.iterdir()}
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {made.client_properties.name, made.librdkafka_properties.name}
    settings = ClientSettings.from_config(made.client_properties)
    assert (settings.bootstrap_servers, settings.security_protocol) == ("127.0.0.1:9999", "SASL_SSL")
    assert ClientSettings.from_config(made.librdkafka_properties) == settings


def test_options_for_the_command_line_tell_no_password(made: ClusterSecurity) -> None:
    """Passwords are in those for the file only, which have them for every listener."""
    password = ClientSettings.from_config(made.client_properties).sasl_plain_password
    assert password is not None
    assert password not in str(made.broker_options())
    told = made.broker_secrets(["SASL_SSL", "INTERNAL"])
    assert all(password in login for login in told.values())
    assert {name.split(".")[2] for name in told} == {"sasl_ssl", "internal"}


def test_lost_passwords_are_named_with_what_to_do(made: ClusterSecurity) -> None:
    """A folder that somebody tidied up is not half used."""
    (made.folder / "passwords.json").unlink()
    with pytest.raises(ClusterError, match="create everything again"):
        made.prepare("127.0.0.1:9092")


def test_the_files_for_another_place_name_nothing_of_this_one(made: ClusterSecurity, tmp_path: Path) -> None:
    """They are copied with the authority beside them, and say where the brokers are from there."""
    there = tmp_path / "there"
    made.export(there, "localhost:9192")
    settings = ClientSettings.from_config(there / made.client_properties.name)
    assert (settings.bootstrap_servers, settings.ssl_cafile) == ("localhost:9192", "ca.pem")
    assert ClientSettings.from_config(there / made.librdkafka_properties.name) == settings
    assert (there / "ca.pem").read_bytes() == made.authority.read_bytes()


def _shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, name: str) -> None:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname=name)
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    waiting = [ours, theirs]
    for _ in range(10):
        for side in list(waiting):
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                continue
    assert not waiting
