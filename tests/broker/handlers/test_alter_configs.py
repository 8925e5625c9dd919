"""AlterConfigs and IncrementalAlterConfigs, version by version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from tests.broker.handlers.small_cluster import SmallCluster, every_version

from ottla.broker.cluster.configs import ConfigOperation
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages import alter_configs, incremental_alter_configs

VERSIONS = every_version(Api.ALTER_CONFIGS)
INCREMENTAL_VERSIONS = every_version(Api.INCREMENTAL_ALTER_CONFIGS)
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS = 2, 4, 8, 16
SET, DELETE, APPEND, SUBTRACT = ConfigOperation
Step = tuple[str, int, str | None]


def whole(kind: int, name: str, *options: tuple[str, str | None]) -> alter_configs.AlterConfigsResource:
    """A resource with all the options that it is to have."""
    return alter_configs.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[alter_configs.AlterableConfig(name=option, value=value) for option, value in options],
    )


def steps(kind: int, name: str, *changes: Step) -> incremental_alter_configs.AlterConfigsResource:
    """A resource with changes."""
    return incremental_alter_configs.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            incremental_alter_configs.AlterableConfig(name=option, config_operation=operation, value=value)
            for option, operation, value in changes
        ],
    )


def replace(
    cluster: SmallCluster, version: int, *resources: alter_configs.AlterConfigsResource, validate_only: bool = False
) -> list[Any]:
    """Send AlterConfigs; every resource must be answered in its place."""
    body = alter_configs.AlterConfigsRequest(resources=list(resources), validate_only=validate_only)
    return _checked(resources, cluster.ask(Api.ALTER_CONFIGS, version, body))


def change(
    cluster: SmallCluster,
    version: int,
    *resources: incremental_alter_configs.AlterConfigsResource,
    validate_only: bool = False,
) -> list[Any]:
    """Send IncrementalAlterConfigs; every resource must be answered in its place."""
    body = incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=list(resources), validate_only=validate_only
    )
    return _checked(resources, cluster.ask(Api.INCREMENTAL_ALTER_CONFIGS, version, body))


def _checked(resources: Any, response: Any) -> list[Any]:
    assert [(each.resource_type, each.resource_name) for each in response.responses] == [
        (each.resource_type, each.resource_name) for each in resources
    ]
    assert all((each.error_code == 0) == (each.error_message is None) for each in response.responses)
    return list(response.responses)


def codes(answers: list[Any]) -> list[int]:
    """The error codes."""
    return [each.error_code for each in answers]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_replacement_leaves_nothing_of_what_was_set(version: int) -> None:
    """Topics, this broker, and all brokers."""
    cluster = SmallCluster()
    cluster.zookeeper.overrides["first"] = {"retention.ms": "1"}
    cluster.zookeeper.brokers = {"1": {"log.retention.ms": "1"}, "": {"log.retention.ms": "2"}}

    answers = replace(
        cluster,
        version,
        whole(TOPIC, "first", ("segment.ms", "9")),
        whole(BROKER, "1", ("message.max.bytes", "9")),
        whole(BROKER, ""),
    )

    assert codes(answers) == [0, 0, 0]
    assert cluster.zookeeper.overrides["first"] == {"segment.ms": "9"}
    assert cluster.zookeeper.brokers == {"1": {"message.max.bytes": "9"}, "": {}}


@pytest.mark.parametrize("version", INCREMENTAL_VERSIONS)
def test_changes_leave_the_other_options(version: int) -> None:
    """Set, delete, append and subtract."""
    cluster = SmallCluster()
    cluster.zookeeper.overrides["first"] = {"retention.ms": "1", "cleanup.policy": "delete", "segment.ms": "5"}
    cluster.zookeeper.brokers["1"] = {"log.cleanup.policy": "delete,compact", "message.max.bytes": "9"}

    answers = change(
        cluster,
        version,
        steps(
            TOPIC,
            "first",
            ("retention.ms", DELETE, None),
            ("max.message.bytes", SET, "7"),
            ("cleanup.policy", APPEND, "compact"),
        ),
        steps(BROKER, "1", ("log.cleanup.policy", SUBTRACT, "delete"), ("log.retention.ms", DELETE, None)),
    )

    assert codes(answers) == [0, 0]
    assert cluster.zookeeper.overrides["first"] == {
        "cleanup.policy": "delete,compact",
        "segment.ms": "5",
        "max.message.bytes": "7",
    }
    assert cluster.zookeeper.brokers["1"] == {"log.cleanup.policy": "compact", "message.max.bytes": "9"}


@pytest.mark.parametrize("validated", [True, False])
def test_validation_changes_nothing(validated: bool) -> None:
    """It answers what the change would."""
    cluster = SmallCluster()

    replaced = replace(
        cluster,
        2,
        whole(TOPIC, "first", ("segment.ms", "9")),
        whole(BROKER, "1", ("zookeeper.connect", "elsewhere:2181")),
        validate_only=validated,
    )
    changed = change(
        cluster,
        1,
        steps(TOPIC, "second", ("segment.ms", SET, "9")),
        steps(BROKER, "", ("advertised.listeners", SET, "PLAINTEXT://elsewhere:1")),
        validate_only=validated,
    )

    assert codes(replaced) == codes(changed) == [ErrorCode.NONE, ErrorCode.INVALID_CONFIG]
    assert list(cluster.zookeeper.overrides) == ([] if validated else ["first", "second"])
    assert cluster.zookeeper.brokers == {"1": {}, "": {}}


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "", ErrorCode.INVALID_REQUEST),
        (TOPIC, "nothing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (BROKER_LOGGER, "1", ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "m", ErrorCode.INVALID_REQUEST),
        (99, "", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_has_no_options_here_is_refused(kind: int, name: str, code: ErrorCode) -> None:
    """In both APIs, and without harm to the resource beside it."""
    cluster = SmallCluster()
    cluster.zookeeper.refusals["nothing"] = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    replaced = replace(
        cluster, 2, whole(kind, name, ("log.retention.ms", "9")), whole(TOPIC, "first", ("segment.ms", "9"))
    )
    changed = change(
        cluster, 1, steps(kind, name, ("log.retention.ms", SET, "9")), steps(TOPIC, "second", ("segment.ms", SET, "9"))
    )

    assert codes(replaced) == codes(changed) == [code, ErrorCode.NONE]
    assert list(cluster.zookeeper.overrides) == ["first", "second"]


def test_a_resource_that_is_named_twice_is_refused_both_times() -> None:
    """Its end would depend on the order."""
    cluster = SmallCluster()

    replaced = replace(cluster, 2, whole(TOPIC, "first"), whole(TOPIC, "other"), whole(TOPIC, "first"))
    changed = change(cluster, 1, steps(TOPIC, "first"), steps(TOPIC, "other"), steps(TOPIC, "first"))

    assert codes(replaced) == codes(changed) == [ErrorCode.INVALID_REQUEST, 0, ErrorCode.INVALID_REQUEST]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "options", [(("segment.ms", "9"), ("segment.ms", "8")), (("segment.ms", "9"), ("retention.ms", None))]
)
def test_an_option_named_twice_or_without_a_value_cannot_replace(
    version: int, options: tuple[tuple[str, str | None], ...]
) -> None:
    """Nothing of the resource is changed."""
    cluster = SmallCluster()

    assert codes(replace(cluster, version, whole(TOPIC, "first", *options))) == [ErrorCode.INVALID_REQUEST]
    assert cluster.zookeeper.overrides == {}


@pytest.mark.parametrize("version", INCREMENTAL_VERSIONS)
@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([("segment.ms", SET, "9"), ("segment.ms", DELETE, None)], ErrorCode.INVALID_REQUEST),
        ([("segment.ms", SET, None)], ErrorCode.INVALID_REQUEST),
        ([("cleanup.policy", APPEND, None)], ErrorCode.INVALID_REQUEST),
        ([("cleanup.policy", SUBTRACT, None)], ErrorCode.INVALID_REQUEST),
        ([("segment.ms", 4, "9")], ErrorCode.INVALID_REQUEST),
        ([("segment.ms", -1, "9")], ErrorCode.INVALID_REQUEST),
        ([("segment.ms", APPEND, "9")], ErrorCode.INVALID_CONFIG),
        ([("segment.ms", SUBTRACT, "9")], ErrorCode.INVALID_CONFIG),
        ([("no.such.option", APPEND, "9")], ErrorCode.INVALID_CONFIG),
    ],
)
def test_impossible_changes_are_refused(version: int, changes: list[Step], code: ErrorCode) -> None:
    """All changes of a resource are made, or none."""
    cluster = SmallCluster()
    wanted: list[Step] = [("retention.ms", SET, "9"), *changes]

    assert codes(change(cluster, version, steps(TOPIC, "first", *wanted))) == [code]
    assert cluster.zookeeper.overrides == {}


@pytest.mark.parametrize(
    ("level", "option", "value"),
    [
        ("1", "zookeeper.connect", "elsewhere:2181"),
        ("", "zookeeper.connect", "elsewhere:2181"),
        ("", "ssl.keystore.location", "/keys"),
        ("", "listener.name.plaintext.max.connections", "9"),
        ("1", "log.retention.ms", "many"),
    ],
)
def test_brokers_take_only_what_can_be_changed_while_they_run(level: str, option: str, value: str) -> None:
    """And for all brokers only what is the same for all."""
    cluster = SmallCluster()

    assert codes(replace(cluster, 2, whole(BROKER, level, (option, value)))) == [ErrorCode.INVALID_CONFIG]
    assert codes(change(cluster, 1, steps(BROKER, level, (option, SET, value)))) == [ErrorCode.INVALID_CONFIG]


@pytest.mark.parametrize("option", ["ssl.key.password", "listener.name.sasl_ssl.plain.sasl.jaas.config"])
def test_secrets_do_not_go_to_zookeeper(option: str) -> None:
    """They are refused without being repeated; one that is there can be taken back."""
    cluster = SmallCluster()

    for answer in (
        replace(cluster, 2, whole(BROKER, "1", (option, "planted"))),
        change(cluster, 1, steps(BROKER, "1", (option, SET, "planted"))),
    ):
        assert codes(answer) == [ErrorCode.INVALID_REQUEST]
        assert "planted" not in answer[0].error_message
    assert cluster.zookeeper.brokers["1"] == {}
    assert codes(change(cluster, 1, steps(BROKER, "1", (option, DELETE, None)))) == [ErrorCode.NONE]


@pytest.mark.parametrize("level", ["1", ""])
@pytest.mark.parametrize(
    "option", ["num.io.threads", "num.network.threads", "num.replica.fetchers", "background.threads"]
)
@pytest.mark.parametrize(("count", "is_taken"), [(3, False), (4, True), (8, True), (16, True), (17, False)])
def test_threads_grow_to_double_and_shrink_to_half_at_most(level: str, option: str, count: int, is_taken: bool) -> None:
    """Of what they are now."""
    cluster = SmallCluster(**{option.replace(".", "_"): "8"})
    expected = [ErrorCode.NONE if is_taken else ErrorCode.INVALID_CONFIG]

    changed = change(cluster, 1, steps(BROKER, level, (option, SET, str(count))), validate_only=True)
    replaced = replace(cluster, 2, whole(BROKER, level, (option, str(count))))

    assert codes(changed) == codes(replaced) == expected
    assert is_taken or "the current value, 8" in replaced[0].error_message
    assert cluster.zookeeper.brokers[level] == ({option: str(count)} if is_taken else {})


def test_taking_a_thread_count_back_has_the_same_limits() -> None:
    """By a deletion, and by a replacement that leaves it out."""
    cluster = SmallCluster(num_io_threads="2")
    dynamic: Mapping[str, str] = {"num.io.threads": "8"}
    cluster.zookeeper.brokers["1"] = dynamic
    configs = cluster.services.configs
    configs.set_broker(configs.broker().with_dynamic(dynamic, {}))

    changed = change(cluster, 1, steps(BROKER, "1", ("num.io.threads", DELETE, None)))
    replaced = replace(cluster, 2, whole(BROKER, "1"))

    assert codes(changed) == codes(replaced) == [ErrorCode.INVALID_CONFIG]
    assert cluster.zookeeper.brokers["1"] == dynamic
