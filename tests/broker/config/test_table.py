"""The table of options is complete, agrees with Kafka 3.9, and is written and read without loss."""

from __future__ import annotations

import re
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.examples import examples

from ottla.broker.config import BROKER_OPTIONS, TOPIC_OPTIONS, BrokerConfig, Dynamic, Option, TopicConfig
from ottla.broker.config.addresses import (
    Address,
    AddressKind,
    CountsKind,
    DirectoriesKind,
    Endpoint,
    EndpointsKind,
    PrincipalsKind,
    ProtocolMapKind,
    SecurityProtocol,
    ZooKeeperAddresses,
    ZooKeeperKind,
)
from ottla.broker.config.ignored import IGNORED_BROKER_OPTIONS, IGNORED_TOPIC_OPTIONS, is_ignored
from ottla.broker.config.kinds import Boolean, Double, Int, List, OptionKind, Password, Secret, String, Whole

ALL_OPTIONS = [*BROKER_OPTIONS.values(), *TOPIC_OPTIONS.values()]

# Name, type, default and changeability of every broker option of Kafka 3.9.
KAFKA = [
    line.split("\t")
    for line in Path(__file__).with_name("kafka_3_9_broker_options.tsv").read_text("utf-8").splitlines()
]

# Kafka knows these too, but not as part of its table.
KAFKA_ELSEWHERE = {
    "allow.everyone.if.no.acl.found",
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
    "super.users",
}

TOPIC_DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "follower.replication.throttled.replicas": "",
    "index.interval.bytes": "4096",
    "leader.replication.throttled.replicas": "",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.downconversion.enable": "true",
    "message.timestamp.after.max.ms": "9223372036854775807",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.difference.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "ottla.check.records": "false",
    "ottla.flush.before.ack": "false",
    "ottla.undelete.ms": "0",
    "preallocate": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}

_word = st.text("abcdefgh0123456789-", min_size=1, max_size=8)
_address = st.builds(Address, _word | st.just("::1"), st.integers(0, 65535))
_names = st.lists(_word.map(str.upper), min_size=1, max_size=3, unique=True)
_endpoints = st.builds(lambda names, address: tuple(Endpoint(name, address) for name in names), _names, _address)
_servers = st.lists(_address, min_size=1, max_size=3).map(tuple)

STRATEGIES: dict[type[OptionKind[Any]], st.SearchStrategy[Any]] = {
    Boolean: st.booleans(),
    Secret: st.builds(Password, _word),
    EndpointsKind: _endpoints,
    AddressKind: st.none() | _address,
    ProtocolMapKind: st.dictionaries(_word.map(str.upper), st.sampled_from(SecurityProtocol)).map(MappingProxyType),
    ZooKeeperKind: st.builds(ZooKeeperAddresses, _servers, st.sampled_from(["", "/a", "/a/b"])),
    DirectoriesKind: st.lists(_word.map(Path), min_size=1, max_size=3, unique=True).map(tuple),
    PrincipalsKind: st.lists(_word.map("User:CN={0},O={0}".format), max_size=3).map(tuple),
    CountsKind: st.dictionaries(_word, st.integers(0, 999999999)).map(MappingProxyType),
}


def values(kind: OptionKind[Any]) -> st.SearchStrategy[Any]:
    """Give the valid values of a kind."""
    if isinstance(kind, Whole):
        lowest, highest = -(1 << (kind.bits - 1)), (1 << (kind.bits - 1)) - 1
        numbers = st.integers(
            lowest if kind.at_least is None else kind.at_least, highest if kind.at_most is None else kind.at_most
        )
        return numbers if kind.or_exactly is None else numbers | st.just(kind.or_exactly)
    if isinstance(kind, Double):
        return st.floats(kind.at_least, kind.at_most, allow_nan=False, allow_infinity=False)
    if isinstance(kind, String):
        return st.sampled_from(kind.one_of) if kind.one_of else _word | st.just("")
    if isinstance(kind, List):
        items = st.sampled_from(kind.one_of) if kind.one_of else _word
        if kind.matching:
            items = st.sampled_from([text for text in ("1:2", "12") if re.fullmatch(kind.matching, text)])
        return st.lists(items, max_size=3).map(tuple)
    return STRATEGIES[type(kind)]


@pytest.mark.parametrize("option", ALL_OPTIONS, ids=lambda option: option.name)
def test_every_option_survives_being_written_and_read(option: Option[Any]) -> None:
    """Formatting and parsing are inverse for all valid values of every row."""

    @examples(20, database=None)
    @given(values(option.kind))
    def check(value: Any) -> None:
        assert option.kind.parse(option.kind.format(value)) == value

    check()


@pytest.mark.parametrize("table", [BROKER_OPTIONS, TOPIC_OPTIONS], ids=["broker", "topic"])
def test_every_default_is_valid(table: dict[str, Option[Any]]) -> None:
    """The effective default of a row, through other rows where it has none, passes the row's own bounds."""
    broker = BrokerConfig()
    effective = vars(broker if table is BROKER_OPTIONS else TopicConfig(broker))
    values = {option: effective[option.attribute] for option in table.values()}

    assert {option.name for option, value in values.items() if value is None} == {
        option.name for option in table.values() if option.default is None and option.fallback is None
    }
    for option, value in values.items():
        assert value is None or option.kind.parse(option.kind.format(value)) == value, option.name


def test_every_option_has_one_line_of_documentation() -> None:
    """It is a sentence, and fits into a table."""
    for option in ALL_OPTIONS:
        text = option.documentation
        assert text.endswith("."), option.name
        assert text.isprintable(), option.name
        assert text[0].isupper() or text[0] == "`", option.name


def test_a_row_with_a_wrong_default_cannot_be_made() -> None:
    """A default outside its own bounds is found when the row is created."""
    with pytest.raises(ValueError, match="the default 13 is not valid for type int, at least 14"):
        Option(Int(at_least=14), 13, "Too small.")
    with pytest.raises(ValueError, match="is not valid for type list"):
        Option(List(), ("a,b",), "A comma inside of an item.")


@pytest.mark.parametrize(("name", "kind", "default", "dynamic"), KAFKA, ids=[row[0] for row in KAFKA])
def test_every_broker_option_of_kafka_is_a_row_or_ignored(name: str, kind: str, default: str, dynamic: str) -> None:
    """A row has Kafka's type and changeability, and its default unless it says otherwise."""
    assert (name in BROKER_OPTIONS) != is_ignored(name)
    if is_ignored(name):
        return
    option = BROKER_OPTIONS[name]
    shown = "null" if option.default is None else option.kind.format(option.default)

    assert option.kind.type.name.lower() == kind
    assert option.dynamic is Dynamic(dynamic)
    if option.kafka_default:
        assert option.kafka_default == default
        assert shown != default
    elif name == "broker.id":
        assert option.fallback is BrokerConfig.node_id
    elif name == "log.dir":
        assert option.default[0].name == Path(default).name
    else:
        assert sorted(shown.split(",")) == sorted(default.split(","))


def test_only_options_of_kafka_and_our_own_are_in_the_table() -> None:
    """A name outside Kafka's begins with `ottla.`."""
    ours = {name for name in BROKER_OPTIONS if name.startswith("ottla.")}

    assert set(BROKER_OPTIONS) - {row[0] for row in KAFKA} - KAFKA_ELSEWHERE == ours


def test_ignored_options_exist_in_kafka() -> None:
    """Each name or family of names in the table of ignored options has a member in Kafka's table."""
    families = [name for names in IGNORED_BROKER_OPTIONS.values() for name in names.split()]
    elsewhere = {"rlmm.config.", "rsm.config.", "confluent."}

    assert {name for name in families if not any(row[0].startswith(name) for row in KAFKA)} == elsewhere


def test_topic_options_have_these_defaults() -> None:
    """The whole list is written out, so that no default changes by accident."""
    config = TopicConfig(BrokerConfig())

    assert {name: config.resolve(name).value for name in sorted(TOPIC_OPTIONS)} == TOPIC_DEFAULTS
    assert not IGNORED_TOPIC_OPTIONS & set(TOPIC_OPTIONS)


def test_our_own_options_have_these_defaults() -> None:
    """They are the only ones that Kafka's documentation does not explain."""
    ours = {name: option for name, option in BROKER_OPTIONS.items() if name.startswith("ottla.")}

    assert {
        name: None if option.default is None else option.kind.format(option.default) for name, option in ours.items()
    } == {
        "ottla.audit": "log",
        "ottla.balance": "off",
        "ottla.balance.bytes.per.second": "20971520",
        "ottla.balance.interval.ms": "60000",
        "ottla.balance.moves.per.broker": "5",
        "ottla.connection.frame.timeout.ms": "30000",
        "ottla.connection.write.timeout.ms": "30000",
        "ottla.drained.brokers": "",
        "ottla.guardian.enable": "true",
        "ottla.http.listener": "127.0.0.1:9644",
        "ottla.http.open": "false",
        "ottla.http.token": None,
        "ottla.http.users": None,
        "ottla.log.check.records": "false",
        "ottla.log.flush.before.ack": "false",
        "ottla.log.min.free.bytes": "268435456",
        "ottla.log.min.free.percent": "1.0",
        "ottla.log.open.files.max": "1000",
        "ottla.metrics.partitions": "true",
        "ottla.request.max.bytes": "8388608",
        "ottla.request.max.entries": "65536",
        "ottla.sasl.oauthbearer.cafile": None,
        "ottla.sasl.plain.allow.without.tls": "false",
        "ottla.topic.max.partitions": "10000",
        "ottla.topic.undelete.ms": "0",
        "ottla.zookeeper.sasl.jaas.config": None,
    }
