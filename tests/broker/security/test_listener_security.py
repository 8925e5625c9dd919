"""What listeners need to let clients in, and how it changes while the broker runs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from tests.broker.security.certificates import Certificates
from tests.kit.waiting import until

from ottla.broker.config import BrokerConfig, ConfigError
from ottla.broker.security import listener_security
from ottla.broker.security.audit.audit import Audit
from ottla.broker.security.listener_security import Listeners
from ottla.broker.security.sasl.sasl_exchange import AuthenticationFailedError, SaslExchange
from ottla.protocol.errors import KafkaError

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
NO_USERS: Any = SimpleNamespace(get=lambda mechanism, user: None)
NO_TOKENS: Any = SimpleNamespace(login=lambda mechanism, token_id: None)


class Configured:
    """A broker's options, as they are now, and what follows from them."""

    def __init__(self, folder: Path, **options: str) -> None:
        self.certificates = Certificates(folder)
        self.options = {
            "listeners": "CLIENTS://127.0.0.1:1,INNER://127.0.0.1:2,OPEN://127.0.0.1:3",
            "listener.security.protocol.map": "CLIENTS:SASL_SSL,INNER:SSL,OPEN:PLAINTEXT",
            "inter.broker.listener.name": "INNER",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.clients.plain.sasl.jaas.config": f"{MODULE} required user_alice=first;",
            **self.certificates.options(),
            **options,
        }
        self.listeners = Listeners(lambda: BrokerConfig.of(self.options), NO_USERS, NO_TOKENS, Audit())

    def knows(self, user: str, password: str) -> bool:
        """Whether a client with a password comes in."""
        sasl = self.listeners["CLIENTS"].sasl
        assert sasl is not None
        exchange: SaslExchange = sasl.exchange("PLAIN")
        next(exchange)
        try:
            exchange.send(f"\0{user}\0{password}".encode())
        except StopIteration:
            return True
        except AuthenticationFailedError:
            return False
        return False


def test_each_listener_has_what_its_protocol_needs(tmp_path: Path) -> None:
    """TLS, SASL, both or nothing."""
    listeners = Configured(tmp_path).listeners
    has = {name: (tls is not None, sasl is not None) for name, (tls, sasl) in listeners.items()}
    assert has == {"CLIENTS": (True, True), "INNER": (True, False), "OPEN": (False, False)}


def test_users_and_passwords_change_while_the_broker_runs(tmp_path: Path) -> None:
    """What cannot be read changes nothing, and is not repeated in the log."""
    configured = Configured(tmp_path)
    assert configured.knows("alice", "first")
    configured.options["listener.name.clients.plain.sasl.jaas.config"] = f"{MODULE} required user_alice=second;"
    configured.listeners.configure()
    assert not configured.knows("alice", "first")
    assert configured.knows("alice", "second")
    configured.options["listener.name.clients.plain.sasl.jaas.config"] = f"{MODULE} required user_alice=planted"
    with structlog.testing.capture_logs() as logs:
        configured.listeners.configure()
    assert configured.knows("alice", "second")
    (said,) = logs
    assert said["event"] == "logins_not_reloaded"
    assert "planted" not in str(said)


def test_options_of_tls_change_while_the_broker_runs(tmp_path: Path) -> None:
    """For new connections: the context is another one. Without a change it is the same."""
    configured = Configured(tmp_path)
    tls = configured.listeners["INNER"].tls
    assert tls is not None
    first = tls.context
    configured.listeners.configure()
    assert tls.context is first
    configured.options["listener.name.inner.ssl.client.auth"] = "required"
    configured.listeners.configure()
    assert tls.context is not first
    second = tls.context
    configured.options["listener.name.inner.ssl.keystore.location"] = "/no/such/file"
    configured.listeners.configure()
    assert tls.context is second


def test_a_client_without_tls_is_named_although_garbage_came_before(tmp_path: Path) -> None:
    """OpenSSL gives both the same reason, and one of the two lines tells an administrator what to do."""
    tls = Configured(tmp_path).listeners["INNER"].tls
    assert tls is not None
    with structlog.testing.capture_logs() as logs:
        for first_bytes in (b"garbage", b"more of it", b"\0\0\0\x10\0\x12", b"\0\0\0\x20\0\x12"):
            tls.failed("127.0.0.1", OSError("wrong version number"), first_bytes)

    assert ["security.protocol" in line["hint"] for line in logs] == [False, True]


def test_files_that_change_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without anybody saying so."""
    monkeypatch.setattr(listener_security, "_FILES_CHECKED_SECONDS", 0.01)
    configured = Configured(tmp_path)
    configured.listeners.start()
    tls = configured.listeners["INNER"].tls
    assert tls is not None
    first = tls.context
    configured.certificates.write(configured.certificates.keystore, configured.certificates.ca, "127.0.0.1")
    until(lambda: tls.context is not first, "the change is noticed")
    configured.listeners.close()


def test_certificates_beside_sasl_are_asked_for_by_the_listeners_own_option(tmp_path: Path) -> None:
    """As in Kafka: the option for all listeners is about those without SASL."""
    configured = Configured(tmp_path, **{"ssl.client.auth": "required"})
    modes = {name: tls.context.verify_mode.name for name, (tls, _) in configured.listeners.items() if tls is not None}
    assert modes == {"CLIENTS": "CERT_NONE", "INNER": "CERT_REQUIRED"}
    configured.options["listener.name.clients.ssl.client.auth"] = "requested"
    configured.listeners.configure()
    modes = {name: tls.context.verify_mode.name for name, (tls, _) in configured.listeners.items() if tls is not None}
    assert modes == {"CLIENTS": "CERT_OPTIONAL", "INNER": "CERT_REQUIRED"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"listener.name.clients.plain.sasl.jaas.config": "x required;"},
            "listener.name.clients.plain.sasl.jaas.config",
        ),
        ({"ssl.principal.mapping.rules": "RULE:(/x/"}, "ssl.principal.mapping.rules"),
        (
            {"listener.name.inner.ssl.keystore.location": "/no/such/file"},
            "listener INNER: /no/such/file cannot be read",
        ),
    ],
)
def test_what_is_missing_stops_the_start(tmp_path: Path, options: dict[str, str], words: str) -> None:
    """The message names the listener or its option."""
    with pytest.raises(ConfigError, match=words):
        Configured(tmp_path, **options)


def test_a_broker_without_a_login_for_others_does_not_start(tmp_path: Path) -> None:
    """The option is named."""
    configured = Configured(
        tmp_path,
        **{
            "inter.broker.listener.name": "CLIENTS",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
        },
    )
    with pytest.raises(
        ConfigError, match=r"listener\.name\.clients\.plain\.sasl\.jaas\.config: the login has no username"
    ):
        configured.listeners.connector("CLIENTS")


def test_a_login_that_becomes_wrong_is_one_that_fails(tmp_path: Path) -> None:
    """Threads that talk to other brokers try again, and outlive it."""
    login = "listener.name.clients.plain.sasl.jaas.config"
    good = f"{MODULE} required username=broker password=secret user_broker=secret;"
    configured = Configured(
        tmp_path,
        **{"inter.broker.listener.name": "CLIENTS", "sasl.mechanism.inter.broker.protocol": "PLAIN", login: good},
    )
    connector = configured.listeners.connector("CLIENTS")
    assert connector.login is not None
    assert next(connector.login.begin()) == b"\0broker\0secret"
    configured.options[login] = f"{MODULE} required password=planted;"
    with pytest.raises(KafkaError, match="the login has no username") as failed:
        connector.login.begin()
    assert "planted" not in str(failed.value)
