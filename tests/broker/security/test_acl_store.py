"""ACLs in a real ZooKeeper: as Kafka writes them, shared by all brokers, and in force while ZooKeeper is away."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.broker.sessions import NOW_MS, TIMEOUT_S, Connect, expire, session
from tests.kit.zookeeper import ZooKeeperServer

from ottla.broker.cluster.session import SessionRenewal
from ottla.broker.cluster.zookeeper import SessionState, ZooKeeper
from ottla.broker.security.acls.acl import AclEntry, ResourcePattern
from ottla.broker.security.acls.acl_nodes import UNREADABLE
from ottla.broker.security.acls.acl_snapshot import AclSnapshot, Entries
from ottla.broker.security.acls.acl_store import AclStore
from ottla.protocol.acls import AclOperation, AclPermissionType, PatternType, ResourceType
from ottla.protocol.errors import ErrorCode, KafkaError

TOPIC = ResourcePattern(ResourceType.TOPIC, "orders")
PREFIX = ResourcePattern(ResourceType.TRANSACTIONAL_ID, "or", PatternType.PREFIXED)
READ = AclEntry("User:alice", "*", AclOperation.READ, AclPermissionType.ALLOW)
NO_WRITE = AclEntry("User:CN=bob,O=x", "10.0.0.1", AclOperation.DESCRIBE_CONFIGS, AclPermissionType.DENY)

READ_ROW = '{"principal":"User:alice","permissionType":"Allow","operation":"Read","host":"*"}'
NO_WRITE_ROW = '{"principal":"User:CN=bob,O=x","permissionType":"Deny","operation":"DescribeConfigs","host":"10.0.0.1"}'


class Heard:
    """A store with all the snapshots that it gave."""

    def __init__(self, zookeeper: ZooKeeper, now_ms: int = NOW_MS) -> None:
        self._changed = threading.Condition()
        self.snapshots: list[AclSnapshot] = []
        self.store = AclStore(zookeeper, self._use, clock=lambda: now_ms)
        self.store.start()

    def _use(self, snapshot: AclSnapshot) -> None:
        with self._changed:
            self.snapshots.append(snapshot)
            self._changed.notify_all()

    def entries(self, pattern: ResourcePattern) -> Entries:
        """The ACLs that are in force."""
        return self.store.snapshot.acls.get(pattern, frozenset())

    def wait_for(self, pattern: ResourcePattern, *entries: AclEntry) -> None:
        """Wait until these ACLs are in force."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.entries(pattern) == set(entries), TIMEOUT_S)


@contextmanager
def stores(*zookeepers: ZooKeeper) -> Iterator[list[Heard]]:
    """Start a store for each session."""
    started = [Heard(zookeeper) for zookeeper in zookeepers]
    try:
        yield started
    finally:
        for heard in started:
            heard.store.close()


def wait_until_empty(zookeeper: ZooKeeper, path: str) -> None:
    """Wait until a node has no children."""
    changed = threading.Event()
    while zookeeper.children(path, watch=changed.set):
        assert changed.wait(TIMEOUT_S)
        changed.clear()


def test_acls_stand_where_kafka_looks_for_them(connect: Connect) -> None:
    """One node for each resource, and a note of each change."""
    zookeeper = connect()
    with stores(zookeeper) as (heard,):
        heard.store.change(TOPIC, added=[READ])
        heard.store.change(TOPIC, added=[NO_WRITE])
        heard.store.change(PREFIX, added=[READ])
    rows = f'{{"version":1,"acls":[{READ_ROW},{NO_WRITE_ROW}]}}'
    assert zookeeper.read("/kafka-acl/Topic/orders").data.decode() == rows
    prefixed = zookeeper.read("/kafka-acl-extended/prefixed/TransactionalId/or").data.decode()
    assert prefixed == f'{{"version":1,"acls":[{READ_ROW}]}}'
    assert zookeeper.read("/kafka-acl-changes/acl_changes_0000000001").data == b"TOPIC:orders"
    note = zookeeper.read("/kafka-acl-extended-changes/acl_changes_0000000000").data.decode()
    assert note == '{"version":1,"resourceType":"TRANSACTIONAL_ID","name":"or","patternType":"PREFIXED"}'
    kinds = ["Cluster", "DelegationToken", "Group", "Topic", "TransactionalId", "User"]
    assert zookeeper.children("/kafka-acl") == zookeeper.children("/kafka-acl-extended/prefixed") == kinds


def test_a_change_holds_here_at_once_and_reaches_the_others(connect: Connect) -> None:
    """Those that run, by a note; those that start later, by reading."""
    with stores(connect(), connect()) as (here, there):
        here.store.change(TOPIC, added=[READ])
        assert here.entries(TOPIC) == {READ}
        there.wait_for(TOPIC, READ)
        there.store.change(PREFIX, added=[NO_WRITE])
        here.wait_for(PREFIX, NO_WRITE)
        with stores(connect()) as (late,):
            assert late.store.snapshot.acls == {TOPIC: {READ}, PREFIX: {NO_WRITE}}


def test_a_resource_without_acls_has_no_node(connect: Connect) -> None:
    """The last one takes it along; removing what is not there is fine."""
    zookeeper = connect()
    with stores(zookeeper) as (heard,):
        heard.store.change(TOPIC, added=[READ, NO_WRITE])
        heard.store.change(TOPIC, removed=[READ])
        assert heard.entries(TOPIC) == {NO_WRITE}
        heard.store.change(TOPIC, removed=[READ, NO_WRITE])
        heard.store.change(TOPIC, removed=[READ])
        assert heard.store.snapshot.acls == {}
    assert zookeeper.children("/kafka-acl/Topic") == []


def test_several_acls_of_one_resource_are_never_seen_half_done(connect: Connect) -> None:
    """Neither by the broker that changes them nor by another, however often that happens."""
    many = frozenset(READ._replace(principal=f"User:u{number}") for number in range(20))
    with stores(connect(), connect()) as (here, there):
        for _ in range(10):
            here.store.change(TOPIC, added=many)
            here.store.change(TOPIC, removed=many)
        there.wait_for(TOPIC)
        seen = [snapshot.acls.get(TOPIC) for heard in (here, there) for snapshot in heard.snapshots]
    assert set(seen) <= {None, many}


def test_changes_of_two_brokers_at_once_are_all_kept(connect: Connect) -> None:
    """Whoever finds the node changed begins again."""
    mine = [READ._replace(principal=f"User:a{number}") for number in range(10)]
    yours = [READ._replace(principal=f"User:b{number}") for number in range(10)]
    with stores(connect(), connect()) as (here, there):

        def add(heard: Heard, entries: list[AclEntry]) -> None:
            for entry in entries:
                heard.store.change(TOPIC, added=[entry])

        threads = [threading.Thread(target=add, args=each) for each in ((here, mine), (there, yours))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(TIMEOUT_S)
        here.wait_for(TOPIC, *mine, *yours)
        there.wait_for(TOPIC, *mine, *yours)


@pytest.mark.parametrize("data", [b"\xff\xfe not json", b'{"version":1,"acls":[{"principal":7}]}', b"[" * 100_000])
def test_a_node_that_cannot_be_read_denies_its_resource_and_nothing_else(connect: Connect, data: bytes) -> None:
    """Whether it is there from the beginning or comes later."""
    zookeeper = connect()
    with stores(zookeeper) as (heard,):
        heard.store.change(PREFIX, added=[READ])
        zookeeper.create("/kafka-acl/Topic/orders", data)
        zookeeper.create_sequential("/kafka-acl-changes/acl_changes_", b"TOPIC:orders")
        heard.wait_for(TOPIC, *UNREADABLE)
        with pytest.raises(KafkaError):
            heard.store.change(TOPIC, added=[READ])
        with stores(connect()) as (late,):
            assert late.store.snapshot.acls == {TOPIC: UNREADABLE, PREFIX: {READ}}


@pytest.mark.parametrize("note", [b"", b"\xff", b"NOTHING:x", b"TOPIC:../../x", b"TOPIC:", b"{}", b"TOPIC"])
def test_a_note_that_cannot_be_read_does_not_stop_the_next(connect: Connect, note: bytes) -> None:
    """Whoever wrote it."""
    zookeeper = connect()
    with stores(zookeeper) as (heard,):
        zookeeper.create_sequential("/kafka-acl-changes/acl_changes_", note)
        zookeeper.create_sequential("/kafka-acl-extended-changes/acl_changes_", note)
        zookeeper.create("/kafka-acl/Topic/orders", f'{{"version":1,"acls":[{READ_ROW}]}}'.encode())
        zookeeper.create_sequential("/kafka-acl-changes/acl_changes_", b"TOPIC:orders")
        heard.wait_for(TOPIC, READ)


def test_acls_of_operations_that_are_not_known_stay_where_they_are(connect: Connect) -> None:
    """They decide nothing here; a newer broker may have use for them."""
    zookeeper = connect()
    newer = READ_ROW.replace("Read", "TwoPhaseCommit")
    with stores(zookeeper):
        zookeeper.create("/kafka-acl/Topic/orders", f'{{"version":1,"acls":[{newer}]}}'.encode())
    with stores(zookeeper) as (heard,):
        assert heard.store.snapshot.acls == {}
        heard.store.change(TOPIC, added=[READ])
        heard.store.change(TOPIC, removed=[READ])
    assert zookeeper.read("/kafka-acl/Topic/orders").data.decode() == f'{{"version":1,"acls":[{newer}]}}'


def test_old_notes_are_deleted_and_one_that_is_missing_is_made_up_for(connect: Connect) -> None:
    """A broker whose clock is ahead may delete a note before others have seen it."""
    zookeeper = connect()
    with stores(zookeeper) as (heard,):
        path = "/kafka-acl-changes/acl_changes_"
        zookeeper.create("/kafka-acl/Topic/orders", f'{{"version":1,"acls":[{READ_ROW}]}}'.encode())
        zookeeper.delete(zookeeper.create_sequential(path, b"TOPIC:orders"))
        zookeeper.create_sequential(path, b"TOPIC:other")
        heard.wait_for(TOPIC, READ)
    ahead = Heard(connect(), now_ms=2**53)
    try:
        ahead.store.change(TOPIC, removed=[READ])
        wait_until_empty(zookeeper, "/kafka-acl-changes")
    finally:
        ahead.store.close()


def test_too_many_acls_for_one_resource_are_refused(connect: Connect) -> None:
    """ZooKeeper would hang up on who sends so much."""
    huge = [READ._replace(principal=f"User:{number}{'x' * 30_000}") for number in range(40)]
    with stores(connect()) as (heard,):
        with pytest.raises(KafkaError) as refused:
            heard.store.change(TOPIC, added=huge)
        assert refused.value.code is ErrorCode.INVALID_REQUEST
        heard.store.change(TOPIC, added=[READ])


def test_a_new_session_reads_what_was_missed(connect: Connect) -> None:
    """And hears of changes again."""
    zookeeper = connect()
    with stores(zookeeper, connect()) as (heard, other):

        class Renewed:
            def session_expired(self) -> None:
                other.store.change(TOPIC, added=[READ])

            def session_renewed(self) -> None:
                heard.store.session_renewed()

        renewal = SessionRenewal(zookeeper, [Renewed()], lambda _error: None)
        renewal.start()
        try:
            expire(zookeeper)
            heard.wait_for(TOPIC, READ)
            other.store.change(TOPIC, removed=[READ])
            heard.wait_for(TOPIC)
        finally:
            renewal.close()


def test_without_zookeeper_the_last_acls_stay(tmp_path: Path) -> None:
    """Changing them fails, and what comes when ZooKeeper is back is heard."""
    suspended = threading.Event()
    with ExitStack() as ends:
        server = ends.enter_context(ZooKeeperServer(tmp_path / "zookeeper"))
        zookeeper = session(server.connect, session_timeout_ms=6_000)
        zookeeper.start()
        ends.callback(zookeeper.close)
        zookeeper.on_state = lambda state: suspended.set() if state is SessionState.SUSPENDED else None
        with stores(zookeeper) as (heard,):
            heard.store.change(TOPIC, added=[READ])
            server.kill()
            assert suspended.wait(TIMEOUT_S)
            assert heard.entries(TOPIC) == {READ}
            with pytest.raises(KafkaError) as refused:
                heard.store.change(TOPIC, removed=[READ])
            assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT
            assert heard.entries(TOPIC) == {READ}
