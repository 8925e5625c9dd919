"""What `ottla doctor` says of transactions that hold back consumers, on scripted brokers."""

from __future__ import annotations

from typing import Any

import pytest
from tests.client.scripted_broker import Reply
from tests.client.transaction_brokers import LONG_AGO_MS, Cluster, Script, administrating, describing, producing
from tests.kit.coroutines import BOTH_LOOPS

from ottla.client.admin.transaction_results import OpenTransaction
from ottla.client.cli.health.findings import Finding, Status
from ottla.client.cli.health.transactions import examine_transactions, overdue_findings
from ottla.protocol.api import Api
from ottla.protocol.config_resources import ConfigResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Versions
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from ottla.protocol.messages.describe_producers import ProducerState
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

MINUTE_MS = 60_000
MAX_TIMEOUT_MS = 15 * MINUTE_MS
# In the tests of this file, a transaction begins or has its last record at 0.
UNKNOWN = OpenTransaction("orders", 0, 7, 3, None, 17, 0, is_hanging=True)
KNOWN = OpenTransaction("orders", 0, 7, 3, None, 17, 0, False, "pay 1", "Ongoing", 1, 2 * MINUTE_MS)


def offsets(stable: int, end: int) -> Script:
    """Answer ListOffsets: partitions of broker 1 have these offsets, all others have nothing open."""

    def answer(node: int, number: int, request: Any) -> Reply:
        offset = stable if node == 1 and request.isolation_level else end
        topics = [
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=each.partition_index, error_code=0, offset=offset, timestamp=-1, leader_epoch=0
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return ListOffsetsResponse(topics=topics)

    return answer


def options(value: str) -> Script:
    """Answer DescribeConfigs with the value of every option."""

    def answer(node: int, number: int, request: Any) -> Reply:
        (name,) = request.resources[0].configuration_keys
        row = DescribeConfigsResourceResult(name=name, value=value, read_only=True, is_sensitive=False)
        result = DescribeConfigsResult(
            error_code=0,
            error_message=None,
            resource_type=ConfigResourceType.BROKER,
            resource_name=request.resources[0].resource_name,
            configs=[row],
        )
        return DescribeConfigsResponse(throttle_time_ms=0, results=[result])

    return answer


async def examined(
    *states: ProducerState, now_ms: int, versions: dict[Api, Versions] | None = None, **scripts: Script
) -> list[Finding]:
    """Examine a cluster whose partition 0 is held back at offset 17 of 20, by these producers."""
    duo = Cluster(*states, LIST_OFFSETS=offsets(17, 20), **{"DESCRIBE_CONFIGS": options("60000"), **scripts})
    async with administrating(duo, versions) as admin:
        return await examine_transactions(admin, now_ms)


def test_a_transaction_hangs_when_it_is_older_than_any_may_be() -> None:
    """With a minute of grace; the command aborts it where it starts."""
    assert overdue_findings([UNKNOWN], MAX_TIMEOUT_MS + MINUTE_MS, MAX_TIMEOUT_MS) == []
    (finding,) = overdue_findings([UNKNOWN], MAX_TIMEOUT_MS + 2 * MINUTE_MS, MAX_TIMEOUT_MS)
    assert finding.status is Status.BROKEN
    assert finding.found == "one of producer 7 hangs in orders-0 at offset 17, last record 17m ago"
    assert "no transactional id has this producer" in finding.advice
    assert finding.change == "ottla transaction abort orders:0 --start-offset 17"


def test_a_partition_that_an_id_has_left_behind_is_named_with_the_id() -> None:
    """Its transaction goes on elsewhere."""
    left = OpenTransaction("orders", 0, 7, 3, None, 17, None, True, "payments", "Ongoing", 1, MINUTE_MS)
    (finding,) = overdue_findings([left], 2 * MAX_TIMEOUT_MS, MAX_TIMEOUT_MS)
    assert finding.found == "one of producer 7 hangs in orders-0 at offset 17"
    assert "'payments' does not have this partition in its transaction" in finding.advice


def test_a_transaction_that_its_coordinator_does_not_abort_is_fenced() -> None:
    """After its own timeout. It is named once, with its partitions, and its id is quoted for the shell."""
    other = OpenTransaction("orders", 1, 7, 3, None, 5, 0, False, "pay 1", "Ongoing", 1, 2 * MINUTE_MS)
    assert overdue_findings([KNOWN, other], 3 * MINUTE_MS, MAX_TIMEOUT_MS) == []
    (finding,) = overdue_findings([KNOWN, other], 4 * MINUTE_MS, MAX_TIMEOUT_MS)
    assert finding.found == "'pay 1' is Ongoing in orders-0, orders-1: began 3m ago, its timeout is 120000 ms"
    assert finding.change == "ottla transaction fence 'pay 1'"


def test_a_transaction_whose_end_is_decided_is_left_to_its_coordinator() -> None:
    """Whoever aborted it in one partition would tear it."""
    decided = OpenTransaction("orders", 0, 7, 3, None, 17, 0, False, "payments", "PrepareCommit", 1, MINUTE_MS)
    (finding,) = overdue_findings([decided], MAX_TIMEOUT_MS, MAX_TIMEOUT_MS)
    assert "until the coordinator has written the markers" in finding.advice
    assert finding.change == "ottla transaction describe payments"


def test_only_the_first_ones_are_named() -> None:
    """With a line that lists the rest."""
    many = [OpenTransaction("orders", number, 7, 3, None, 17, 0, is_hanging=True) for number in range(9)]
    *named, rest = overdue_findings(many, 2 * MAX_TIMEOUT_MS, MAX_TIMEOUT_MS)
    assert [finding.change.split()[3] for finding in named] == ["orders:0", "orders:1", "orders:2"]
    assert (rest.found, rest.change) == ("6 more are overdue", "ottla transaction find-hanging")


@BOTH_LOOPS
async def test_a_cluster_that_holds_nobody_back_is_well() -> None:
    """Partitions are not asked for their producers then."""
    duo = Cluster(producing(8, 17), LIST_OFFSETS=offsets(20, 20))
    async with administrating(duo) as admin:
        assert await examine_transactions(admin) == [
            Finding(Status.OK, "transactions", "none holds back consumers of committed records")
        ]
    assert duo.times(Api.DESCRIBE_PRODUCERS) == 0


@BOTH_LOOPS
async def test_the_maximum_is_that_of_the_brokers() -> None:
    """Here a minute; the partition that holds nobody back is not named."""
    late, early = LONG_AGO_MS + 2 * MINUTE_MS + 1, LONG_AGO_MS + MINUTE_MS
    (finding,) = await examined(producing(8, 17), now_ms=late)
    assert (finding.status, finding.change) == (Status.BROKEN, "ottla transaction abort t:0 --start-offset 17")
    (finding,) = await examined(producing(8, 17), now_ms=early)
    assert (finding.status, finding.found) == (Status.OK, "open in t-0; none overdue")
    unset = await examined(producing(8, 17), now_ms=late, DESCRIBE_CONFIGS=options(""))
    assert [finding.status for finding in unset] == [Status.OK]


@BOTH_LOOPS
async def test_a_transaction_that_its_coordinator_knows_is_judged_by_its_own_timeout() -> None:
    """The id is known from its coordinator."""
    (finding,) = await examined(producing(7, 17), now_ms=10 * MINUTE_MS)
    assert (finding.status, finding.change) == (Status.BROKEN, "ottla transaction fence a")


@BOTH_LOOPS
@pytest.mark.parametrize("api", [Api.DESCRIBE_PRODUCERS, Api.LIST_TRANSACTIONS])
async def test_what_cannot_be_asked_is_not_said_to_be_well(api: Api) -> None:
    """Old brokers do not tell their producers, and coordinators may refuse."""
    found = await examined(producing(8, 17), now_ms=10 * MAX_TIMEOUT_MS, versions={api: Versions(90, 91)})
    assert len(found) == 1
    assert ErrorCode.UNSUPPORTED_VERSION.description in found[0].found
    assert found[0].found.startswith("open in t-0; ")
    assert "none overdue" not in found[0].found


@BOTH_LOOPS
async def test_a_coordinator_that_refuses_is_a_warning() -> None:
    """The transaction may be overdue."""
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    (finding,) = await examined(
        producing(7, 17), now_ms=10 * MAX_TIMEOUT_MS, DESCRIBE_TRANSACTIONS=lambda *_: describing("a", code=code)
    )
    assert (finding.status, code.description in finding.found) == (Status.WARNING, True)
