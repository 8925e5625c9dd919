"""InitProducerId, version by version."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.handlers.small_cluster import SmallCluster, every_version

from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest

VERSIONS = every_version(Api.INIT_PRODUCER_ID)


def ask(cluster: SmallCluster, version: int, transactional_id: str | None = None, **fields: int) -> Any:
    """Ask for a producer id."""
    body = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000, **fields)
    return cluster.ask(Api.INIT_PRODUCER_ID, version, body)


@pytest.mark.parametrize("version", VERSIONS)
def test_each_idempotent_producer_gets_an_id_of_its_own(version: int) -> None:
    """With epoch 0."""
    cluster = SmallCluster()

    answers = [ask(cluster, version) for _ in range(3)]

    assert [(each.error_code, each.producer_id, each.producer_epoch) for each in answers] == [
        (0, 1001, 0),
        (0, 1002, 0),
        (0, 1003, 0),
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_that_does_not_coordinate_a_transactional_id_says_so(version: int) -> None:
    """The client looks for the coordinator again."""
    (response,) = ask(SmallCluster(), version, "orders").answers

    assert response.error_code == ErrorCode.NOT_COORDINATOR
    assert (response.producer_id, response.producer_epoch) == (-1, -1)


@pytest.mark.parametrize("version", range(3, 6))
def test_a_producer_with_an_id_gets_a_new_one(version: int) -> None:
    """Its sequences begin anew."""
    response = ask(SmallCluster(), version, producer_id=7, producer_epoch=2)

    assert (response.error_code, response.producer_id, response.producer_epoch) == (0, 1001, 0)


@pytest.mark.parametrize("fields", [{"producer_id": 7}, {"producer_epoch": 2}])
def test_id_and_epoch_belong_together(fields: dict[str, int]) -> None:
    """One without the other is a mistake of the client."""
    assert ask(SmallCluster(), 5, None, **fields).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", VERSIONS)
def test_an_empty_transactional_id_is_invalid(version: int) -> None:
    """It is not the same as none."""
    assert ask(SmallCluster(), version, "").error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", VERSIONS)
def test_what_keeps_the_cluster_from_giving_ids_is_told(version: int) -> None:
    """ZooKeeper may be away; the client tries again."""
    cluster = SmallCluster()
    cluster.zookeeper.refusals["producer"] = KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    assert ask(cluster, version).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
