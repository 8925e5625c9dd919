"""AlterClientQuotas and DescribeClientQuotas, version by version."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.handlers.small_cluster import SmallCluster, every_version

from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from ottla.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest

VERSIONS = every_version(Api.ALTER_CLIENT_QUOTAS)
EXACT, DEFAULT, ANY = 0, 1, 2
INVALID = ErrorCode.INVALID_REQUEST

Named = dict[str, str | None]


def change(entity: Named, *ops: OpData, **values: float) -> RequestEntryData:
    """A wish for an entity: values to set, or operations as they are."""
    settings = [OpData(key=key, value=value, remove=False) for key, value in values.items()]
    return RequestEntryData(
        entity=[RequestEntityData(entity_type=each, entity_name=name) for each, name in entity.items()],
        ops=[*settings, *ops],
    )


def removal(key: str) -> OpData:
    """A quota that is to go."""
    return OpData(key=key, value=0.0, remove=True)


def alter(
    cluster: SmallCluster, *entries: RequestEntryData, version: int = 1, validate_only: bool = False
) -> list[int]:
    """Ask for changes; return the codes."""
    body = AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    response = cluster.ask(Api.ALTER_CLIENT_QUOTAS, version, body)
    assert [[each.entity_name for each in entry.entity] for entry in response.entries] == [
        [each.entity_name for each in entry.entity] for entry in entries
    ]
    return [entry.error_code for entry in response.entries]


def ask(cluster: SmallCluster, *components: tuple[str, int, str | None], strict: bool = False, version: int = 1) -> Any:
    """Ask for quotas."""
    body = DescribeClientQuotasRequest(
        components=[ComponentData(entity_type=each, match_type=kind, match=name) for each, kind, name in components],
        strict=strict,
    )
    return cluster.ask(Api.DESCRIBE_CLIENT_QUOTAS, version, body)


def described(cluster: SmallCluster, *components: tuple[str, int, str | None], **options: Any) -> dict[Any, Any]:
    """Ask for quotas; return them by entity."""
    response = ask(cluster, *components, **options)
    assert (response.error_code, response.error_message) == (0, None)
    return {
        tuple((each.entity_type, each.entity_name) for each in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in response.entries
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_quotas_stand_where_kafka_looks_for_them(version: int) -> None:
    """In the nodes of their entities, as text, beside what else is there."""
    cluster = SmallCluster()
    cluster.zookeeper.entities = {"users": {"a%2Fb": {"SCRAM-SHA-256": "secret", "consumer_byte_rate": "7"}}}

    codes = alter(
        cluster,
        change({"user": "a/b"}, removal("consumer_byte_rate"), producer_byte_rate=1024.0),
        change({"user": None}, request_percentage=12.5),
        change({"user": "a/b", "client-id": None}, controller_mutation_rate=0.5),
        change({"client-id": "c"}, consumer_byte_rate=3e9),
        change({"ip": "10.0.0.1"}, connection_creation_rate=5.0),
        change({"ip": None}, connection_creation_rate=10.0),
        version=version,
    )

    assert codes == [0] * 6
    assert cluster.zookeeper.entities == {
        "users": {
            "a%2Fb": {"SCRAM-SHA-256": "secret", "producer_byte_rate": "1024"},
            "<default>": {"request_percentage": "12.5"},
        },
        "users/a%2Fb/clients": {"<default>": {"controller_mutation_rate": "0.5"}},
        "clients": {"c": {"consumer_byte_rate": "3000000000"}},
        "ips": {
            "10.0.0.1": {"connection_creation_rate": "5"},
            "<default>": {"connection_creation_rate": "10"},
        },
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_what_cannot_be_is_refused_for_its_entity_alone(version: int) -> None:
    """Each for its reason."""
    cluster = SmallCluster()
    user: Named = {"user": "u"}

    codes = alter(
        cluster,
        change({}, producer_byte_rate=1.0),
        change({"user": ""}, producer_byte_rate=1.0),
        change({"": "u"}, producer_byte_rate=1.0),
        change({"group": "g"}, producer_byte_rate=1.0),
        change({"user": "u", "ip": "10.0.0.1"}, producer_byte_rate=1.0),
        change({"ip": "example.org"}, connection_creation_rate=1.0),
        change({"ip": "10.0.0.1"}, producer_byte_rate=1.0),
        change(user, connection_creation_rate=1.0),
        change(user, **{"SCRAM-SHA-256": 1.0}),
        change(user, removal("SCRAM-SHA-256")),
        change(user, producer_byte_rate=0.0),
        change(user, producer_byte_rate=-1.0),
        change(user, producer_byte_rate=1.5),
        change(user, request_percentage=float("nan")),
        change(user, request_percentage=float("inf")),
        change(user, removal("producer_byte_rate"), producer_byte_rate=1.0),
        change(user, request_percentage=50.0),
        version=version,
    )

    assert codes == [INVALID] * 3 + [ErrorCode.UNSUPPORTED_VERSION] + [INVALID] * 12 + [0]
    assert cluster.zookeeper.entities == {"users": {"u": {"request_percentage": "50.0"}}}


def test_a_type_that_is_named_twice_is_refused() -> None:
    """It would be two entities."""
    twice = RequestEntryData(
        entity=[RequestEntityData(entity_type="user", entity_name=name) for name in ("a", "b")],
        ops=[OpData(key="producer_byte_rate", value=1.0, remove=False)],
    )

    assert alter(SmallCluster(), twice) == [INVALID]


def test_validation_changes_nothing() -> None:
    """It only checks."""
    cluster = SmallCluster()
    entries = [change({"user": "u"}, producer_byte_rate=1.0), change({"user": "u"}, producer_byte_rate=0.5)]

    assert alter(cluster, *entries, validate_only=True) == [0, INVALID]
    assert cluster.zookeeper.entities == {}


USER, PAIR, CLIENT = (("user", "u"),), (("user", "u"), ("client-id", "c")), (("client-id", "c"),)
USERS, ADDRESS = (("user", None),), (("ip", "10.0.0.1"),)


@pytest.fixture
def cluster() -> SmallCluster:
    """A cluster with a quota for an entity of each kind."""
    made = SmallCluster()
    made.zookeeper.entities = {
        "users": {
            "u": {"producer_byte_rate": "1", "SCRAM-SHA-256": "secret"},
            "<default>": {"producer_byte_rate": "2"},
            "bare": {"SCRAM-SHA-256": "secret"},
            "broken": {"producer_byte_rate": "many"},
        },
        "users/u/clients": {"c": {"producer_byte_rate": "3"}},
        "clients": {"c": {"request_percentage": "4.5"}},
        "ips": {"10.0.0.1": {"connection_creation_rate": "5"}},
    }
    return made


@pytest.mark.parametrize("version", VERSIONS)
def test_everything_is_described_when_nothing_is_asked_for(cluster: SmallCluster, version: int) -> None:
    """Without credentials, and what is no number."""
    assert described(cluster, version=version) == {
        USER: {"producer_byte_rate": 1.0},
        USERS: {"producer_byte_rate": 2.0},
        PAIR: {"producer_byte_rate": 3.0},
        CLIENT: {"request_percentage": 4.5},
        ADDRESS: {"connection_creation_rate": 5.0},
    }


@pytest.mark.parametrize(
    ("components", "strict", "expected"),
    [
        ([], True, set()),
        ([("user", EXACT, "u")], False, {USER, PAIR}),
        ([("user", EXACT, "u")], True, {USER}),
        ([("user", DEFAULT, None)], False, {USERS}),
        ([("user", ANY, None)], True, {USER, USERS}),
        ([("user", ANY, None)], False, {USER, USERS, PAIR}),
        ([("client-id", EXACT, "c")], False, {CLIENT, PAIR}),
        ([("client-id", EXACT, "c")], True, {CLIENT}),
        ([("user", EXACT, "u"), ("client-id", EXACT, "c")], True, {PAIR}),
        ([("user", ANY, None), ("client-id", ANY, None)], False, {PAIR}),
        ([("user", EXACT, "nobody")], False, set()),
        ([("ip", ANY, None)], False, {ADDRESS}),
        ([("ip", DEFAULT, None)], True, set()),
    ],
)
def test_filters_choose_as_kafkas_do(
    cluster: SmallCluster, components: list[tuple[str, int, str | None]], strict: bool, expected: set[Any]
) -> None:
    """By name, by default, or any; and with or without what is not spoken of."""
    assert described(cluster, *components, strict=strict).keys() == expected


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("user", ANY, None), ("user", ANY, None)], INVALID),
        ([("user", ANY, None), ("ip", ANY, None)], INVALID),
        ([("", ANY, None)], INVALID),
        ([("group", ANY, None)], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", 3, None)], INVALID),
        ([("user", EXACT, None)], INVALID),
    ],
)
def test_a_filter_that_cannot_be_is_refused(
    cluster: SmallCluster, components: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    """The answer has no entries then."""
    response = ask(cluster, *components)

    assert (response.error_code, response.entries) == (code, None)


def test_without_zookeeper_nothing_is_described(cluster: SmallCluster) -> None:
    """The whole answer says why."""
    cluster.zookeeper.refusals["clients"] = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "ZooKeeper is away")

    assert ask(cluster).error_code == ErrorCode.REQUEST_TIMED_OUT
