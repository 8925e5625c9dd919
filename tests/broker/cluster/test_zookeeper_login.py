"""A ZooKeeper with TLS and logins: who gets in, whose the nodes are, and how that is changed for a whole tree."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.broker.cluster.guarded_session import SESSION_TIMEOUT_MS
from tests.broker.cluster.test_guardian import Guarded
from tests.broker.security.certificates import Certificates
from tests.kit.waiting import until
from tests.kit.zookeeper import ZooKeeperServer

from ottla.broker.app.zookeeper_session import zookeeper_session
from ottla.broker.cluster import znodes
from ottla.broker.cluster.acl_migration import Migrated, migrate
from ottla.broker.cluster.node_access import SECURE_ROOTS, NodeAccess, access_of
from ottla.broker.cluster.operations import (
    Create,
    LoginRefusedError,
    MultiError,
    NotAllowedError,
    ZooKeeperError,
    ZooKeeperUnavailableError,
)
from ottla.broker.cluster.zookeeper import ZooKeeper
from ottla.broker.config import BrokerConfig, ConfigError
from ottla.client.local_cluster.zookeeper import ServerSecurity, login_file

PASSWORDS = {"broker": "the brokers' password", "other": "another password"}
STRANGER: dict[str, str] = {}
# A node of each kind: readable, private, open.
KINDS = {"/brokers/ids": NodeAccess.READABLE, "/config/users": NodeAccess.PRIVATE, "/consumers": NodeAccess.OPEN}


class Secured:
    """A server, and sessions with it by different logins."""

    def __init__(self, server: ZooKeeperServer, certificates: Certificates, stack: ExitStack) -> None:
        self.server = server
        self._certificates = certificates
        self._stack = stack
        self.chroot = f"/{uuid.uuid4().hex}"

    def login(self, user: str, password: str | None = None) -> dict[str, str]:
        """Return the options of a login that owns what it creates."""
        module = "org.apache.zookeeper.server.auth.DigestLoginModule"
        text = f'{module} required username="{user}" password="{password or PASSWORDS[user]}";'
        return {"ottla.zookeeper.sasl.jaas.config": text, "zookeeper.set.acl": "true"}

    @property
    def connect(self) -> str:
        """The connect string, with the chroot."""
        return self.server.connect + self.chroot

    @property
    def tls(self) -> dict[str, str]:
        """The options for TLS."""
        return {
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.truststore.location": str(self._certificates.truststore),
            "zookeeper.ssl.truststore.type": "PEM",
        }

    def session(self, options: Mapping[str, str]) -> ZooKeeper:
        """Return a session that is not started."""
        own = {"zookeeper.connect": self.connect, "zookeeper.session.timeout.ms": "10000"}
        return zookeeper_session(BrokerConfig.of({**own, **self.tls, **options}))

    def connected(self, options: Mapping[str, str]) -> ZooKeeper:
        """Return a session that is closed after the test."""
        made = self.session(options)
        made.start()
        self._stack.callback(made.close)
        return made

    def broker(self) -> ZooKeeper:
        """Return a session of a broker."""
        return self.connected(self.login("broker"))

    def stranger(self) -> ZooKeeper:
        """Return a session of somebody without a password."""
        return self.connected(STRANGER)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An authority, and the key of the server."""
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[ZooKeeperServer]:
    """One server for the file."""
    folder = tmp_path_factory.mktemp("zookeeper")
    login = folder / "login"
    login.write_text(login_file(PASSWORDS))
    with ZooKeeperServer(folder, security=ServerSecurity(certificates.keystore, login)) as made:
        yield made


@pytest.fixture
def secured(server: ZooKeeperServer, certificates: Certificates) -> Iterator[Secured]:
    """The server with a fresh chroot."""
    with ExitStack() as stack:
        yield Secured(server, certificates, stack)


def is_refused(call: Callable[[], object]) -> bool:
    """Whether ZooKeeper does not allow a call."""
    try:
        call()
    except NotAllowedError:
        return True
    except MultiError as error:
        return isinstance(error.reason, NotAllowedError)
    return False


def access(zookeeper: ZooKeeper, path: str, name: str = "child") -> NodeAccess:
    """Return what a session may do with a node, by trying."""
    may_read = not is_refused(lambda: zookeeper.read(path))
    may_write = not is_refused(lambda: zookeeper.write(path, b"changed"))
    may_add = not is_refused(lambda: zookeeper.create(f"{path}/{name}"))
    assert may_write == may_add
    return NodeAccess.OPEN if may_write else NodeAccess.READABLE if may_read else NodeAccess.PRIVATE


def test_only_the_brokers_change_their_nodes(secured: Secured) -> None:
    """Others read them, except for passwords; old consumers have a place of their own."""
    broker, stranger = secured.broker(), secured.stranger()
    for path in znodes.PERSISTENT_PATHS:
        broker.ensure_path(path)
    assert {path: access(stranger, path) for path in KINDS} == KINDS
    assert {path: access(broker, path, "another") for path in KINDS} == dict.fromkeys(KINDS, NodeAccess.OPEN)
    assert access(stranger, "/config") is NodeAccess.READABLE, "a parent is not as private as its child"
    assert access(stranger, "/") is NodeAccess.READABLE
    assert is_refused(lambda: stranger.delete("/brokers/ids/another"))


def test_every_way_to_create_a_node_protects_it(secured: Secured) -> None:
    """Also in a multi, with a number, and for the time of a session."""
    broker, stranger = secured.broker(), secured.stranger()
    broker.ensure_path("/config/users")
    broker.create("/controller", b"1", ephemeral=True)
    broker.multi([Create("/brokers"), Create("/brokers/topics"), Create("/config/users/alice", b"secret")])
    numbered = broker.create_sequential("/brokers/n_", b"1")
    for path in ("/brokers", "/brokers/topics", numbered):
        assert access(stranger, path) is NodeAccess.READABLE
    assert is_refused(lambda: stranger.read("/config/users/alice"))
    assert is_refused(lambda: stranger.write("/controller", b"2"))
    assert is_refused(lambda: stranger.multi([Create("/config/users/admin", b"mine")]))


def test_a_wrong_password_is_told_at_once(secured: Secured) -> None:
    """With the option to look at, and without the password."""
    with pytest.raises(LoginRefusedError) as refused:
        secured.session(secured.login("broker", "a guess")).start()
    assert "does not accept the password of broker" in str(refused.value)
    assert "ottla.zookeeper.sasl.jaas.config" in str(refused.value)
    assert "a guess" not in str(refused.value)


def test_a_server_that_we_do_not_trust_is_told(secured: Secured, tmp_path: Path) -> None:
    """It must not look like one that does not answer."""
    options = {
        "zookeeper.ssl.truststore.location": str(Certificates(tmp_path).truststore),
        "zookeeper.connection.timeout.ms": "1000",
    }
    with pytest.raises(ZooKeeperUnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
        secured.session({**secured.login("broker"), **options}).start()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"zookeeper.set.acl": "true"}, "needs a login that the nodes belong to"),
        ({"ottla.zookeeper.sasl.jaas.config": "secret"}, "a login is: module required name=value"),
        (
            {"ottla.zookeeper.sasl.jaas.config": 'a.PlainLoginModule required username="u" password="secret";'},
            "must be org.apache.zookeeper.server.auth.DigestLoginModule",
        ),
        ({"zookeeper.ssl.client.enable": "true", "zookeeper.ssl.truststore.location": "/no.pem"}, "cannot be read"),
    ],
)
def test_a_login_that_cannot_be_used_is_refused_at_the_start(options: dict[str, str], problem: str) -> None:
    """With the reason, and without a secret."""
    with pytest.raises(ConfigError, match=problem) as refused:
        zookeeper_session(BrokerConfig.of({"zookeeper.connect": "localhost:1", **options}))
    assert "secret" not in str(refused.value)


def test_many_large_answers_arrive_through_tls(secured: Secured) -> None:
    """Several are decrypted at once, which no selector tells."""
    broker = secured.broker()
    paths = [f"/n{number}" for number in range(40)]
    for number, path in enumerate(paths):
        broker.create(path, bytes([number]) * 30_000)
    nodes = broker.read_many(paths)
    assert [node and node.data[:1] for node in nodes] == [bytes([number]) for number in range(40)]


@pytest.mark.long
def test_a_session_logs_in_again_after_a_restart_of_the_server(certificates: Certificates, tmp_path: Path) -> None:
    """A connection that is lost on the way says nothing about the password."""
    login = tmp_path / "login"
    login.write_text(login_file(PASSWORDS))
    with (
        ZooKeeperServer(tmp_path, security=ServerSecurity(certificates.keystore, login)) as own,
        ExitStack() as stack,
    ):
        broker = Secured(own, certificates, stack).broker()
        broker.create("/controller", b"1", ephemeral=True)
        session_id = broker.session_id
        own.kill()
        own.start()
        broker.write("/controller", b"2")
        assert broker.session_id == session_id


def test_the_guardian_closes_the_session_of_a_dead_broker_through_tls(secured: Secured) -> None:
    """Long before it times out; it trusts only the servers that the broker trusts."""
    stranger = secured.stranger()
    guarded = Guarded(secured.connect, "/guarded", {**secured.tls, **secured.login("broker")})
    try:
        assert stranger.exists("/guarded") is not None
        guarded.signal(signal.SIGKILL)
        until(lambda: stranger.exists("/guarded") is None, "the node is gone", seconds=SESSION_TIMEOUT_MS / 2000)
    finally:
        guarded.process.kill()
        guarded.process.communicate()


def tree(zookeeper: ZooKeeper) -> list[str]:
    """Create some nodes below each root; return the paths of all nodes."""
    paths = [*SECURE_ROOTS, "/config/users/alice", "/config/topics/t", "/brokers/topics/t/partitions/0/state"]
    for path in paths:
        zookeeper.ensure_path(path)
    return paths


def test_an_open_tree_becomes_secure_and_open_again(secured: Secured) -> None:
    """As often as one likes; nodes that are none of ours stay as they are."""
    stranger = secured.stranger()
    paths = tree(stranger)
    stranger.ensure_path("/consumers/old")
    stranger.ensure_path("/someone/else")
    broker = secured.broker()
    for _ in range(2):
        done = migrate(broker, is_secure=True)
        assert done.refused == ()
        for path in paths:
            expected = access_of(path, is_secure=True)
            assert expected is not NodeAccess.OPEN
            assert access(stranger, path) is expected, path
        assert is_refused(lambda: stranger.create("/mine"))
        assert access(stranger, "/consumers/old", uuid.uuid4().hex) is NodeAccess.OPEN
        assert access(stranger, "/someone/else", uuid.uuid4().hex) is NodeAccess.OPEN
    for _ in range(2):
        assert migrate(broker, is_secure=False).refused == ()
        for path in paths:
            assert access(stranger, path, uuid.uuid4().hex) is NodeAccess.OPEN, path


def test_a_migration_that_was_interrupted_is_completed_by_another(
    secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After any level of the tree."""
    stranger, broker = secured.stranger(), secured.broker()
    paths = tree(stranger)
    set_access = broker.set_access
    for count in range(4):
        calls: list[object] = []

        def interrupted(
            wanted: Mapping[str, NodeAccess], calls: list[object] = calls, count: int = count
        ) -> dict[str, bool]:
            calls.append(wanted)
            if len(calls) > count:
                raise ZooKeeperUnavailableError("cut")
            return set_access(wanted)

        monkeypatch.setattr(broker, "set_access", interrupted)
        with pytest.raises(ZooKeeperError, match="cut"):
            migrate(broker, is_secure=True)
    monkeypatch.undo()
    migrate(broker, is_secure=True)
    assert all(access(stranger, path) is access_of(path, is_secure=True) for path in paths)


def test_a_migration_names_the_nodes_of_another_login(secured: Secured) -> None:
    """They stay as they are, and the others are migrated."""
    stranger = secured.stranger()
    stranger.ensure_path("/brokers")
    stranger.ensure_path("/config")
    other = secured.connected(secured.login("other"))
    other.ensure_path("/cluster/id")
    other.ensure_path("/config/users/alice")
    done = migrate(secured.broker(), is_secure=True)
    # The root, two open nodes, and those of the other login without what is below them.
    assert done == Migrated(5, ("/cluster", "/config/users"))
    assert access(stranger, "/brokers") is NodeAccess.READABLE
    assert access(other, "/cluster/id") is NodeAccess.OPEN
