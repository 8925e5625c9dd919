"""Registration of brokers, against a real ZooKeeper."""

from __future__ import annotations

import threading

import pytest
from tests.broker.sessions import NOW_MS, TIMEOUT_S, Connect, clock, expire

from ottla.broker.cluster import znodes
from ottla.broker.cluster.membership import Membership, RegistrationError
from ottla.broker.cluster.session import SessionRenewal
from ottla.broker.cluster.zookeeper import ZooKeeper
from ottla.broker.config import BrokerConfig


def membership(zookeeper: ZooKeeper, **options: str) -> Membership:
    """Make a membership with options, given with underscores for dots."""
    settings = {"zookeeper.connect": "unused:1", "zookeeper.session.timeout.ms": "400"}
    settings |= {name.replace("_", "."): value for name, value in options.items()}
    made = Membership(zookeeper, BrokerConfig.of(settings), clock=clock)
    made.prepare()
    made.choose_broker_id(None)
    return made


def test_all_brokers_agree_on_the_clusters_id(connect: Connect) -> None:
    """The first one gives it, and the node is Kafka's."""
    zookeeper = connect()
    first = membership(zookeeper, broker_id="1").cluster_id()
    assert len(first) == 22
    assert membership(connect(), broker_id="2").cluster_id() == first
    assert zookeeper.read("/cluster/id").data == f'{{"version":"1","id":"{first}"}}'.encode()


def test_the_broker_epoch_is_the_nodes_czxid(connect: Connect) -> None:
    """It comes back from the registration, and the node is ephemeral and complete."""
    zookeeper = connect()
    broker = membership(
        zookeeper, broker_id="3", broker_rack="r1", listeners="PLAINTEXT://h:9092,SSL://h:9093", ssl_keystore_key="k"
    )
    epoch = broker.register()
    node = zookeeper.read("/brokers/ids/3")
    assert node.stat.czxid == epoch == broker.broker_epoch
    assert node.stat.ephemeral_owner == zookeeper.session_id
    content = znodes.BrokerNode.decode(node.data, "/brokers/ids/3")
    assert (content.host, content.port, content.rack, content.timestamp) == ("h", 9092, "r1", str(NOW_MS))
    assert content.endpoints == ["PLAINTEXT://h:9092", "SSL://h:9093"]
    assert content.listener_security_protocol_map == {"PLAINTEXT": "PLAINTEXT", "SSL": "SSL"}


def test_the_persistent_nodes_are_there(connect: Connect) -> None:
    """Tools and other brokers expect them."""
    zookeeper = connect()
    membership(zookeeper, broker_id="1")
    membership(zookeeper, broker_id="1")
    for path in znodes.PERSISTENT_PATHS:
        assert zookeeper.exists(path) is not None


def test_ids_come_from_the_config_then_the_disk_then_a_counter(connect: Connect) -> None:
    """Chosen ids are above the reserved ones, and no two are equal."""
    zookeeper = connect()
    assert membership(zookeeper, broker_id="5").choose_broker_id(7) == 5
    chosen = membership(zookeeper)
    assert chosen.broker_id == 1001
    assert chosen.choose_broker_id(7) == 7
    assert chosen.choose_broker_id(None) == 1002


def test_a_second_broker_with_the_same_id_is_refused(connect: Connect) -> None:
    """At once if it is somewhere else; the error names the other."""
    membership(connect(), broker_id="1", listeners="PLAINTEXT://one:9092").register()
    second = membership(connect(), broker_id="1", listeners="PLAINTEXT://two:9092")
    with pytest.raises(RegistrationError, match=r"id 1.*PLAINTEXT://one:9092"):
        second.register()
    assert second.broker_epoch == -1


def test_two_brokers_at_one_address_are_refused(connect: Connect) -> None:
    """They would get each other's requests."""
    membership(connect(), broker_id="1", listeners="PLAINTEXT://h:9092").register()
    with pytest.raises(RegistrationError, match=r"h:9092.*advertised\.listeners"):
        membership(
            connect(),
            broker_id="2",
            listeners="EXTERNAL://h:9092,PLAINTEXT://h:9093",
            listener_security_protocol_map="EXTERNAL:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        ).register()


def test_a_killed_brokers_successor_waits_for_the_end_of_its_session(connect: Connect) -> None:
    """The same broker at the same address is let in as soon as the old node is gone."""
    killed = connect()
    old = membership(killed, broker_id="1", listeners="PLAINTEXT://h:9092").register()
    waiting = connect()
    new = membership(waiting, broker_id="1", listeners="PLAINTEXT://h:9092", zookeeper_session_timeout_ms="60000")
    epochs: list[int] = []
    registration = threading.Thread(target=lambda: epochs.append(new.register()))
    seen = threading.Event()
    exists = waiting.exists

    def exists_and_tell(path: str, watch: object = None) -> object:
        try:
            return exists(path, watch)  # type: ignore[arg-type]
        finally:
            seen.set()

    waiting.exists = exists_and_tell  # type: ignore[method-assign,assignment]
    registration.start()
    assert seen.wait(TIMEOUT_S)
    killed.close()
    registration.join(TIMEOUT_S)
    assert epochs[0] > old


def test_a_live_broker_at_the_same_address_is_not_replaced(connect: Connect) -> None:
    """Waiting has an end."""
    membership(connect(), broker_id="1", listeners="PLAINTEXT://h:9092").register()
    with pytest.raises(RegistrationError, match="live broker with id 1"):
        membership(connect(), broker_id="1", listeners="PLAINTEXT://h:9092").register()


def test_a_broker_registers_again_after_its_session_expired(connect: Connect) -> None:
    """With a higher epoch; in between it is no member."""
    zookeeper = connect()
    broker = membership(zookeeper, broker_id="1", listeners="PLAINTEXT://h:9092")
    epoch = broker.register()
    order: list[str] = []
    done = threading.Event()

    class Listener:
        def session_expired(self) -> None:
            order.append(f"expired as {broker.broker_epoch}")

        def session_renewed(self) -> None:
            order.append("renewed")
            done.set()

    renewal = SessionRenewal(zookeeper, [broker, Listener()], lambda error: pytest.fail(str(error)))
    renewal.start()
    expire(zookeeper)
    assert done.wait(TIMEOUT_S)
    renewal.close()
    assert order == ["expired as -1", "renewed"]
    assert broker.broker_epoch > epoch


def test_a_node_of_our_own_earlier_session_is_replaced(connect: Connect) -> None:
    """It may outlive a session that we gave up; we need not wait for it."""
    earlier, later = connect(), connect()
    broker = membership(earlier, broker_id="1", listeners="PLAINTEXT://h:9092", zookeeper_session_timeout_ms="60000")
    epoch = broker.register()
    broker._zookeeper = later
    assert broker.register() > epoch
    assert later.read("/brokers/ids/1").stat.ephemeral_owner == later.session_id


def test_a_lost_answer_to_the_registration_is_recognised(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node is there and ours, so the registration was done."""
    zookeeper = connect()
    broker = membership(zookeeper, broker_id="1", listeners="PLAINTEXT://h:9092")
    multi = zookeeper.multi

    def answer_lost(operations: list[object]) -> object:
        multi(operations)  # type: ignore[arg-type]
        return multi(operations)  # type: ignore[arg-type]

    monkeypatch.setattr(zookeeper, "multi", answer_lost)
    assert broker.register() == zookeeper.read("/brokers/ids/1").stat.czxid


def test_a_broker_whose_id_was_taken_meanwhile_gives_up(connect: Connect) -> None:
    """What stands in its place is another broker."""
    zookeeper = connect()
    broker = membership(zookeeper, broker_id="1", listeners="PLAINTEXT://h:9092")
    broker.register()
    failures: list[Exception] = []
    failed = threading.Event()

    def fail(error: Exception) -> None:
        failures.append(error)
        failed.set()

    class Thief:
        def session_expired(self) -> None:
            membership(connect(), broker_id="1", listeners="PLAINTEXT://other:9092").register()

        def session_renewed(self) -> None:
            """Nothing to renew."""

    renewal = SessionRenewal(zookeeper, [Thief(), broker], fail)
    renewal.start()
    expire(zookeeper)
    assert failed.wait(TIMEOUT_S)
    renewal.close()
    assert isinstance(failures[0], RegistrationError)


def test_a_replacement_for_a_lost_broker_takes_its_id(connect: Connect) -> None:
    """It comes with empty disks, from another address; the configured id is enough, and the epoch is higher."""
    lost = connect()
    epoch = membership(lost, broker_id="1", listeners="PLAINTEXT://one:9092").register()
    lost.close()
    replacement = membership(connect(), broker_id="1", listeners="PLAINTEXT://two:9092")
    assert replacement.choose_broker_id(None) == 1
    assert replacement.register() > epoch


def test_a_broker_leads_alone_only_as_a_member_whose_session_is_sure(connect: Connect) -> None:
    """Before the registration, and after the end of the session, others may know more than it does."""
    zookeeper = connect()
    broker = membership(zookeeper, broker_id="1", listeners="PLAINTEXT://h:9092")
    assert [broker.may_lead_alone, broker.register() > 0, broker.may_lead_alone] == [False, True, True]
    expire(zookeeper)
    assert not broker.may_lead_alone
    broker.session_expired()
    zookeeper.renew_session()
    assert not broker.may_lead_alone
    broker.session_renewed()
    assert broker.may_lead_alone
