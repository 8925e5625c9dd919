"""What is kept of the users' credentials, on a real ZooKeeper."""

from __future__ import annotations

import threading

from tests.broker.sessions import sessions
from tests.kit.zookeeper import ZooKeeper as Ensemble

from ottla.broker.cluster.configs import Configs
from ottla.broker.security.sasl.scram_credentials import ScramCredential, ScramCredentials

CREDENTIAL = ScramCredential(b"salt", b"stored", b"server", 4096)
OTHER = ScramCredential(b"salt", b"other", b"server", 8192)


def test_credentials_are_read_at_the_start_and_when_they_change(zookeeper: Ensemble) -> None:
    """Those that cannot be read lock out their own users alone."""
    with sessions(zookeeper) as connect:
        session = connect()
        session.ensure_path("/config/users")
        session.ensure_path("/config/changes")
        session.create("/config/users/broken", b"\xff")
        configs = Configs(session)
        configs.change("users", "a%2Fb", lambda _config: {"SCRAM-SHA-256": CREDENTIAL.format()})
        configs.change("users", "bad", lambda _config: {"SCRAM-SHA-256": "salt=", "SCRAM-SHA-512": OTHER.format()})
        configs.change("users", "<default>", lambda _config: {"SCRAM-SHA-256": CREDENTIAL.format()})
        credentials = ScramCredentials(session)
        credentials.start()

        assert credentials.get("SCRAM-SHA-256", "a/b") == CREDENTIAL
        assert credentials.get("SCRAM-SHA-512", "a/b") is None
        assert credentials.get("SCRAM-SHA-256", "bad") is None
        assert credentials.get("SCRAM-SHA-512", "bad") == OTHER
        assert credentials.get("SCRAM-SHA-256", "<default>") is None

        configs.change("users", "a%2Fb", lambda _config: {"SCRAM-SHA-256": OTHER.format()})
        configs.change("users", "a%2Fb/clients/c", lambda _config: {"producer_byte_rate": "1"})
        credentials.entity_changed("users", "a%2Fb")
        credentials.entity_changed("users", "a%2Fb/clients/c")
        credentials.entity_changed("clients", "bad")
        configs.change("users", "bad", lambda _config: {})
        credentials.session_renewed()

        assert credentials.get("SCRAM-SHA-256", "a/b") == OTHER
        assert credentials.get("SCRAM-SHA-512", "bad") is None
        credentials.entity_changed("users", "gone")


def test_all_brokers_invent_from_the_same_secret(zookeeper: Ensemble) -> None:
    """The first one creates it; nothing in their own options matters."""
    with sessions(zookeeper) as connect:
        brokers = [ScramCredentials(connect()) for _ in range(3)]
        brokers[0]._configs._zookeeper.ensure_path("/config/users")
        assert len({broker.secret for broker in brokers}) == 3
        threads = [threading.Thread(target=broker.start) for broker in brokers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (secret,) = {broker.secret for broker in brokers}
        assert len(secret) == 32
        brokers[1].session_renewed()
        assert brokers[1].secret == secret
