"""Options that change while brokers run."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.broker.cluster.facade import Facade
from tests.broker.sessions import NOW_MS, TIMEOUT_S, Connect, clock, expire

from ottla.broker.cluster.configs import ConfigChange, ConfigChanges, ConfigOperation, Configs, changed_config
from ottla.broker.cluster.operations import ZooKeeperError, ZooKeeperUnavailableError
from ottla.broker.cluster.session import SessionRenewal
from ottla.broker.cluster.zookeeper import ZooKeeper
from ottla.broker.config import TOPIC_OPTIONS
from ottla.protocol.errors import ErrorCode, KafkaError

SET, DELETE, APPEND, SUBTRACT = ConfigOperation

Changes = queue.SimpleQueue[tuple[str, str]]


@contextmanager
def listening(zookeeper: ZooKeeper, now_ms: int = NOW_MS) -> Iterator[tuple[ConfigChanges, Changes]]:
    """Listen to changes, and give what is heard."""
    heard: Changes = queue.SimpleQueue()
    changes = ConfigChanges(zookeeper, lambda entity_type, name: heard.put((entity_type, name)), clock=lambda: now_ms)
    changes.start()
    try:
        yield changes, heard
    finally:
        changes.close()


def code_of(call: object, *arguments: object) -> ErrorCode:
    """Return the code that a call is refused with."""
    assert callable(call)
    with pytest.raises(KafkaError) as caught:
        call(*arguments)
    return caught.value.code


def test_a_change_of_a_topic_reaches_every_broker(connect: Connect) -> None:
    """First the config node, then a note, as Kafka writes them; the listener reads the new value."""
    facade = Facade(connect())
    facade.tell("a")
    with listening(connect()) as (_, heard):
        facade.cluster.change_topic_config("a", [ConfigChange("retention.ms", SET, "1000")])
        assert heard.get(timeout=TIMEOUT_S) == ("topics", "a")
    assert facade.zookeeper.read("/config/topics/a").data == b'{"version":1,"config":{"retention.ms":"1000"}}'
    note = facade.zookeeper.read("/config/changes/config_change_0000000000")
    assert note.data == b'{"version":2,"entity_path":"topics/a"}'
    assert facade.cluster.topic_config("a").retention_ms == 1000
    assert Configs(facade.zookeeper).read_all("topics") == {"a": {"retention.ms": "1000"}}


def test_notes_are_heard_in_order_and_each_once(connect: Connect) -> None:
    """Those from before the start are heard too, for they may be news."""
    facade = Facade(connect())
    facade.tell("a", "b")
    facade.cluster.replace_topic_config("a", {})
    with listening(connect()) as (_, heard):
        assert heard.get(timeout=TIMEOUT_S) == ("topics", "a")
        facade.cluster.replace_topic_config("b", {})
        facade.cluster.replace_broker_config("", {})
        facade.cluster.replace_broker_config("1", {})
        names = [heard.get(timeout=TIMEOUT_S) for _ in range(3)]
        assert names == [("topics", "b"), ("brokers", "<default>"), ("brokers", "1")]
        assert heard.empty()


def test_a_note_that_cannot_be_read_does_not_stop_the_next(connect: Connect) -> None:
    """Whoever wrote it."""
    facade = Facade(connect())
    facade.tell("a")
    facade.zookeeper.create_sequential("/config/changes/config_change_", b"not json")
    facade.cluster.replace_topic_config("a", {})
    with listening(connect()) as (_, heard):
        assert heard.get(timeout=TIMEOUT_S) == ("topics", "a")


def test_a_note_is_told_again_when_its_options_could_not_be_read(connect: Connect) -> None:
    """ZooKeeper may go away between a note and what it is about."""
    facade = Facade(connect())
    heard: queue.SimpleQueue[str] = queue.SimpleQueue()
    outages = [KafkaError(ErrorCode.REQUEST_TIMED_OUT), ZooKeeperUnavailableError("away")]

    def hear(_entity_type: str, name: str) -> None:
        if outages:
            raise outages.pop()
        heard.put(name)

    changes = ConfigChanges(facade.zookeeper, hear, clock=clock)
    changes.start()
    try:
        facade.tell("a")
        facade.cluster.replace_topic_config("a", {"retention.ms": "5"})
        assert heard.get(timeout=TIMEOUT_S) == "a"
    finally:
        changes.close()


def test_old_notes_are_deleted(connect: Connect) -> None:
    """After fifteen minutes every broker has had its chance."""
    zookeeper = connect()
    facade = Facade(zookeeper)
    facade.tell("a", "b")
    facade.cluster.replace_topic_config("a", {})
    created_ms = zookeeper.read("/config/changes/config_change_0000000000").stat.created_ms
    with listening(connect(), created_ms + 15 * 60 * 1000) as (changes, heard):
        heard.get(timeout=TIMEOUT_S)
        changes._notes._clock = lambda: created_ms + 15 * 60 * 1000 + 1
        facade.cluster.replace_topic_config("b", {})
        heard.get(timeout=TIMEOUT_S)
    assert "config_change_0000000000" not in zookeeper.children("/config/changes")


def test_changes_during_a_lost_session_are_heard_afterwards(connect: Connect) -> None:
    """Once each, like all others."""
    listener = connect()
    facade = Facade(connect())
    facade.tell("a", "b")
    with listening(listener) as (changes, heard):
        facade.cluster.replace_topic_config("a", {})
        heard.get(timeout=TIMEOUT_S)
        expire(listener)
        facade.cluster.replace_topic_config("b", {})
        renewal = SessionRenewal(listener, [changes], lambda error: pytest.fail(str(error)))
        renewal.start()
        assert heard.get(timeout=TIMEOUT_S) == ("topics", "b")
        renewal.close()


def test_topic_options_are_checked(connect: Connect) -> None:
    """Unknown topics, names and values have Kafka's codes, and nothing is written."""
    facade = Facade(connect())
    facade.tell("a")
    replace = facade.cluster.replace_topic_config
    assert code_of(replace, "b", {}) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code_of(replace, "a", {"retention.ms": "soon"}) is ErrorCode.INVALID_CONFIG
    assert code_of(replace, "a", {"no.such.option": "1"}) is ErrorCode.INVALID_CONFIG
    replace("a", {"retention.ms": "5"}, validate_only=True)
    assert facade.zookeeper.children("/config/topics") == []
    assert facade.zookeeper.children("/config/changes") == []


def test_replacing_drops_what_is_not_named(connect: Connect) -> None:
    """Unlike changing, which keeps it."""
    facade = Facade(connect())
    facade.tell("a")
    facade.cluster.replace_topic_config("a", {"retention.ms": "5", "segment.bytes": "100000"})
    facade.cluster.change_topic_config("a", [ConfigChange("retention.ms", DELETE, None)])
    assert Configs(facade.zookeeper).read_all("topics") == {"a": {"segment.bytes": "100000"}}
    facade.cluster.replace_topic_config("a", {"retention.ms": "6"})
    assert Configs(facade.zookeeper).read_all("topics") == {"a": {"retention.ms": "6"}}


def test_broker_options_are_checked(connect: Connect) -> None:
    """Only dynamic ones, those of one broker not for all, and only of this broker."""
    facade = Facade(connect())
    replace = facade.cluster.replace_broker_config
    assert code_of(replace, "2", {}) is ErrorCode.INVALID_REQUEST
    assert code_of(replace, "1", {"no.such.option": "1"}) is ErrorCode.INVALID_CONFIG
    assert code_of(replace, "1", {"broker.rack": "r"}) is ErrorCode.INVALID_CONFIG
    assert code_of(replace, "", {"advertised.listeners": "PLAINTEXT://h:1"}) is ErrorCode.INVALID_CONFIG
    assert code_of(replace, "1", {"num.io.threads": "0"}) is ErrorCode.INVALID_CONFIG
    replace("1", {"num.io.threads": "4"})
    facade.cluster.change_broker_config("", [ConfigChange("log.retention.ms", SET, "1000")])
    assert facade.cluster.dynamic_config() == ({"num.io.threads": "4"}, {"log.retention.ms": "1000"})
    assert facade.config.with_dynamic(*facade.cluster.dynamic_config()).num_io_threads == 4


def test_a_name_that_is_no_broker_option_is_refused_with_the_one_that_was_meant(connect: Connect) -> None:
    """Kafka stores it, for the sake of its plug-ins; we have none, and a typo would go unnoticed."""
    facade = Facade(connect())
    with pytest.raises(KafkaError, match=r"log\.retenton\.ms is not .*; did you mean log\.retention\.ms\?"):
        facade.cluster.change_broker_config("", [ConfigChange("log.retenton.ms", SET, "1000")])
    assert facade.cluster.dynamic_config() == ({}, {})


def test_options_that_brokers_of_kafka_stored_are_left_alone(connect: Connect) -> None:
    """What their plug-ins understand must not keep anybody from changing the rest; it can be taken back, too."""
    facade = Facade(connect())
    plugin = {"my.reporter.url": "http://here"}
    facade.cluster.change_entity_config("brokers", "1", lambda _current: plugin)
    facade.cluster.change_broker_config("1", [ConfigChange("num.io.threads", SET, "4")])
    assert facade.cluster.dynamic_config() == ({**plugin, "num.io.threads": "4"}, {})
    other = ConfigChange("my.reporter.url", SET, "http://there")
    assert code_of(facade.cluster.change_broker_config, "1", [other]) is ErrorCode.INVALID_CONFIG
    facade.cluster.change_broker_config("1", [ConfigChange("my.reporter.url", DELETE, None)])
    assert facade.cluster.dynamic_config() == ({"num.io.threads": "4"}, {})


def test_lists_take_and_give_items() -> None:
    """Starting from the value in effect where none is set; an item is there once."""

    def changed(current: dict[str, str], operation: ConfigOperation, value: str) -> dict[str, str]:
        change = ConfigChange("cleanup.policy", operation, value)
        return changed_config(current, [change], TOPIC_OPTIONS.get, lambda _: "delete")

    assert changed({}, APPEND, "compact") == {"cleanup.policy": "delete,compact"}
    assert changed({"cleanup.policy": "compact"}, APPEND, "compact, delete") == {"cleanup.policy": "compact,delete"}
    assert changed({"cleanup.policy": "compact,delete"}, SUBTRACT, "delete") == {"cleanup.policy": "compact"}


def test_changes_that_make_no_sense_are_refused() -> None:
    """Twice the same option, no value, an item for what is no list."""

    def refused(*changes: ConfigChange) -> ErrorCode:
        return code_of(changed_config, {}, changes, TOPIC_OPTIONS.get, lambda _: None)

    assert refused(*[ConfigChange("retention.ms", SET, "1")] * 2) is ErrorCode.INVALID_REQUEST
    assert refused(ConfigChange("retention.ms", SET, None)) is ErrorCode.INVALID_REQUEST
    assert refused(ConfigChange("retention.ms", APPEND, "1")) is ErrorCode.INVALID_CONFIG
    assert refused(ConfigChange("no.such.option", SUBTRACT, "1")) is ErrorCode.INVALID_CONFIG


def test_two_writers_do_not_lose_each_others_changes(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that comes in between is taken in."""
    facade, other = Facade(connect()), Facade(connect())
    facade.tell("a")
    other.tell("a")
    read = facade.zookeeper.read_or_none

    def read_then_other(path: str) -> object:
        monkeypatch.undo()
        node = read(path)
        other.cluster.change_topic_config("a", [ConfigChange("segment.bytes", SET, "100000")])
        return node

    monkeypatch.setattr(facade.zookeeper, "read_or_none", read_then_other)
    facade.cluster.change_topic_config("a", [ConfigChange("retention.ms", SET, "5")])
    assert Configs(facade.zookeeper).read_all("topics") == {"a": {"retention.ms": "5", "segment.bytes": "100000"}}


def test_the_controller_is_the_one_in_the_metadata_or_ourselves(connect: Connect) -> None:
    """A broker that was just elected knows it before it is told."""
    facade = Facade(connect())
    assert (facade.cluster.controller_id, facade.cluster.is_controller) == (2, False)
    facade.is_controller = True
    assert (facade.cluster.controller_id, facade.cluster.is_controller) == (1, True)


def test_zookeepers_absence_is_told_as_a_code_to_retry(connect: Connect) -> None:
    """Handlers know KafkaError only."""
    facade = Facade(connect())
    expire(facade.zookeeper)
    assert code_of(facade.cluster.delete_topic, "a") is ErrorCode.REQUEST_TIMED_OUT


def test_options_of_many_types_are_read_together(connect: Connect) -> None:
    """Also of client ids below users, where there are none, and without what cannot be read."""
    zookeeper = connect()
    for path in ("/config/users/bare", "/config/changes"):
        zookeeper.ensure_path(path)
    configs = Configs(zookeeper)
    configs.change("users", "u", lambda _config: {"a": "1"})
    configs.change("users", "u/clients/c", lambda _config: {"b": "2"})
    zookeeper.create("/config/users/broken", b"{")

    read = configs.read_types(["users", "users/u/clients", "users/bare/clients", "ips"], skip_malformed=True)

    assert configs.names("users") == ["bare", "broken", "u"]
    assert read == {
        "users": {"u": {"a": "1"}},
        "users/u/clients": {"c": {"b": "2"}},
        "users/bare/clients": {},
        "ips": {},
    }
    with pytest.raises(ZooKeeperError, match="/config/users/broken holds 1 bytes"):
        configs.read_all("users")
