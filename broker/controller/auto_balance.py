"""`ottla.balance=auto`: new brokers fill themselves, and drained ones empty themselves.

At intervals the controller asks all brokers for the sizes of their replicas. How much a partition has grown since the
last time is its traffic. If the cluster is uneven, a plan is made and handed to the queue of moves. Only one plan is
carried out at a time. While a broker is missing or stopping, nothing is planned: after a restart it has its replicas
again.

Asking and planning take time, so a thread does it; all decisions are made on the controller's thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from ottla.balance.load import ClusterLoad, PartitionLoad
from ottla.balance.plan import BalancePlan
from ottla.balance.planner import NotEnoughBrokersError
from ottla.balance.trigger import plan_if_needed
from ottla.broker.controller.office import Office
from ottla.broker.controller.reassignments.move_queue import MoveLimits, MoveQueue
from ottla.client.net.blocking_connection import BlockingConnection
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError, ProtocolError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

log = structlog.get_logger(__name__)

# The oldest version with an error code of the whole response.
_VERSION: Final = 3
# What does not fit into one plan is planned next time.
_MOVES_MAX: Final = 1_000

Sizes = Mapping[TopicPartition, int]


class AutoBalance:
    """Balances the cluster in one term, if the options want that."""

    def __init__(self, office: Office, moves: MoveQueue) -> None:
        self._office = office
        self._context = office.context
        self._moves = moves
        # Whether a thread asks and plans.
        self.is_measuring = False
        # The sizes of partitions when they were last asked for, and when that was.
        self._sizes: Sizes = {}
        self._sized_at_ms: int | None = None

    def begin(self) -> None:
        """Start to check at intervals."""
        self._office.post_after(self._office.config().ottla_balance_interval_ms / 1000, self._check_again)

    def _check_again(self) -> None:
        self.begin()
        self.check()

    def check(self) -> None:
        """Measure the cluster, and balance it if it is uneven. Returns at once."""
        # Whatever woke nobody up, such as a topic that was deleted, is noticed now.
        self._moves.advance()
        if self._office.config().ottla_balance != "auto":
            self._sizes, self._sized_at_ms = {}, None
        elif not self.is_measuring and self._is_quiet():
            self.is_measuring = True
            threading.Thread(target=self._measurement(), name="auto-balance", daemon=True).start()

    def _is_quiet(self) -> bool:
        """Return whether nothing moves or is about to change."""
        context = self._context
        if len(self._moves) or context.reassigning or context.deleting or context.shutting_down:
            return False
        expected = set(context.brokers) | self._drained()
        return all(
            expected.issuperset(assignment.replicas)
            for partitions in context.assignments.values()
            for assignment in partitions.values()
        )

    def _drained(self) -> set[int]:
        return {int(broker) for broker in self._office.config().ottla_drained_brokers}

    # On a thread of its own

    def _measurement(self) -> Callable[[], None]:
        """Return what the thread does, with its own copy of everything that it needs."""
        context = self._context
        connections = {broker: self._office.connection(broker) for broker in context.brokers}
        racks = {broker.id: broker.node.rack or None for broker in context.brokers.values()}
        replicas = {each: context.assignment(each).replicas for each in context.partitions()}
        leaders = {partition: state.leader for partition, state in context.leadership.items()}
        drained = frozenset(self._drained())
        earlier, earlier_at_ms = self._sizes, self._sized_at_ms

        def measure() -> None:
            try:
                sizes = _sizes(connections, leaders)
                now_ms = self._office.monotonic_ms()
                seconds = None if earlier_at_ms is None else max(1, now_ms - earlier_at_ms) / 1000
                loads = {
                    partition: PartitionLoad(
                        brokers,
                        sizes.get(partition, 0),
                        _rate(sizes.get(partition), earlier.get(partition), seconds),
                        leaders.get(partition),
                    )
                    for partition, brokers in replicas.items()
                }
                made = plan_if_needed(ClusterLoad(racks, loads, drained))
                self._office.post(self._planned, sizes, now_ms, made)
            except (KafkaError, ProtocolError, NotEnoughBrokersError) as error:
                self._office.post(self._not_planned, str(error))
            except Exception as error:
                log.exception("balance_failed")
                self._office.post(self._not_planned, str(error))

        return measure

    # On the controller's thread again

    def _not_planned(self, reason: str) -> None:
        self.is_measuring = False
        log.warning("balance_not_planned", reason=reason)

    def _planned(self, sizes: Sizes, sized_at_ms: int, made: BalancePlan | None) -> None:
        self.is_measuring = False
        self._sizes, self._sized_at_ms = sizes, sized_at_ms
        config = self._office.config()
        is_wanted = config.ottla_balance == "auto" and made is not None and made.load.drained == self._drained()
        if made is None or not is_wanted or not self._is_quiet():
            return
        # What has changed since is planned again next time.
        moves = [move for move in made.moves if self._context.assignment(move.partition).replicas == move.replicas][
            :_MOVES_MAX
        ]
        log.info(
            "balance_planned",
            partitions=len(moves),
            copied_bytes=sum(move.copied_bytes for move in moves),
            leader_changes=made.leader_changes,
            drained=sorted(made.load.drained),
        )
        rate = config.ottla_balance_bytes_per_second
        self._moves.alter(
            {move.partition: move.target for move in moves},
            # A copy must be faster than what is written meanwhile.
            MoveLimits(config.ottla_balance_moves_per_broker, rate and max(rate, 2 * int(made.traffic_to_receivers))),
        )


def _sizes(connections: Mapping[int, BlockingConnection | None], leaders: Mapping[TopicPartition, int]) -> Sizes:
    """Ask brokers for the sizes of the replicas that they lead; raise KafkaError if one does not answer."""
    found: dict[TopicPartition, int] = {}
    for broker, connection in connections.items():
        if connection is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker} has no address")
        try:
            response: DescribeLogDirsResponse = connection.request(
                Api.DESCRIBE_LOG_DIRS, _VERSION, DescribeLogDirsRequest(topics=None)
            )
        finally:
            connection.close()
        if response.error_code != ErrorCode.NONE:
            raise KafkaError(ErrorCode.of(response.error_code), f"broker {broker} does not tell the sizes of replicas")
        for directory in response.results:
            for topic in directory.topics:
                for each in topic.partitions:
                    partition = TopicPartition(topic.name, each.partition_index)
                    if leaders.get(partition) == broker and not each.is_future_key:
                        found[partition] = each.partition_size
    return found


def _rate(size: int | None, earlier: int | None, seconds: float | None) -> float:
    """Return how fast a partition grows; retention may have deleted more than was written."""
    return 0.0 if size is None or earlier is None or seconds is None else max(0, size - earlier) / seconds
