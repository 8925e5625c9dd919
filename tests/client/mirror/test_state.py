"""What a mirror selects, compares and measures, without a cluster."""

from __future__ import annotations

import re

import pytest
from tests.client.mirror.test_kafka_steps import batch

from ottla.client.admin.security_results import AclBinding
from ottla.client.mirror.metrics import page
from ottla.client.mirror.partition_copy import PartitionCopy
from ottla.client.mirror.positions import difference
from ottla.client.mirror.selection import Selection
from ottla.client.types import TopicPartition
from ottla.protocol.acls import AclOperation, PatternType, ResourceType

SELECTION = Selection([re.compile("orders.*")], [re.compile(".*-tmp")], [re.compile("billing")])


def test_topics_match_as_a_whole_and_internal_ones_never_do() -> None:
    """Nor those that are excluded."""
    names = ["orders", "orders-eu", "my-orders", "orders-tmp", "__consumer_offsets"]
    assert [name for name in names if SELECTION.has_topic(name)] == ["orders", "orders-eu"]
    assert not Selection().has_topic("__transaction_state")
    assert not Selection().has_group("ottla-mirror-x")


@pytest.mark.parametrize(
    ("kind", "name", "pattern", "is_copied"),
    [
        (ResourceType.TOPIC, "orders", PatternType.LITERAL, True),
        (ResourceType.TOPIC, "payments", PatternType.LITERAL, False),
        (ResourceType.TOPIC, "*", PatternType.LITERAL, True),
        (ResourceType.TOPIC, "pay", PatternType.PREFIXED, True),
        (ResourceType.GROUP, "billing", PatternType.LITERAL, True),
        (ResourceType.GROUP, "other", PatternType.LITERAL, False),
        (ResourceType.CLUSTER, "kafka-cluster", PatternType.LITERAL, True),
    ],
)
def test_acls_of_what_is_left_out_are_left_out(
    kind: ResourceType, name: str, pattern: PatternType, is_copied: bool
) -> None:
    """An ACL that may concern what is copied comes along."""
    assert SELECTION.has_acl(AclBinding("User:a", AclOperation.READ, kind, name, pattern)) is is_copied


def test_lag_is_known_in_records_bytes_and_seconds() -> None:
    """Records that the source has deleted meanwhile do not count."""
    copy = PartitionCopy(TopicPartition('a"b', 3))
    copy.source_start, copy.source_end = 10, 110
    assert (copy.lag_records, copy.lag_bytes, copy.lag_seconds(5000)) == (100, 0, 0.0)
    made = batch(10, (0, 1, 2, 3))
    copy.count([made])
    copy.advance(14)

    assert copy.lag_records == 96
    assert copy.lag_bytes == 96 * made.size // 4
    assert copy.lag_seconds(3003) == 2.0
    assert 'ottla_mirror_lag_seconds{topic="a\\"b",partition="3"} 2\n' in page([copy], 3003)

    copy.advance(110)
    assert (copy.lag_records, copy.lag_bytes, copy.lag_seconds(5000)) == (0, 0, 0.0)


def test_pauses_after_failures_grow_to_a_limit_and_end_with_success() -> None:
    """So a cluster that is down is not asked all the time."""
    copy = PartitionCopy(TopicPartition("t", 0))
    pauses = []
    for _ in range(10):
        copy.retry("down", 100.0)
        pauses.append(round(copy.retry_at - 100.0, 1))
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0, 5.0]
    assert copy.position is None

    copy.advance(1)
    assert (copy.error, copy.failures) == (None, 0)


def test_logs_are_compared_by_the_records_that_both_should_have() -> None:
    """Compaction may have removed some; where there is none, a missing record is a difference."""
    ours = [batch(5, (0, 1))]
    other = batch(5, (0,), last=1)
    assert difference(ours, [batch(5, (0, 1))], 5, may_miss=False) is None
    assert difference(ours, [other], 5, may_miss=True) is None
    assert difference(ours, [other], 5, may_miss=False) == "the record at offset 6 is not in the source"
    # With another time.
    assert difference(ours, [batch(6, (0,))], 6, may_miss=True) == (
        "the record at offset 6 is another one in the source"
    )
