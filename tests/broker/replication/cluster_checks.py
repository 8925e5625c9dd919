"""What must hold in a cluster after every step, and what must come to hold when everything works again.

1  what is below the high watermark of anybody who leads is on every replica of the ISR, for good
2  the ISR changes by compare-and-set only           (asserted by the model of the controller)
3  whoever joins the ISR has what is committed       (follows from 1, for the ISR has changed then)
4  logs that agree in an offset and its epoch agree in all before
5  who fetches in another epoch gets nothing
6  the leader is in the ISR, one broker leads in an epoch, and epochs rise through a log
7  log start <= high watermark <= log end; recovery point <= log end; consumers read below the high watermark
8  the word of an earlier controller changes nothing
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations, pairwise
from typing import NamedTuple

from tests.broker.replication.cluster_model import Cluster, ModelBroker, contents
from tests.broker.replication.controller_model import REPLICAS
from tests.broker.replication.in_flight import FetchedMessage, RoleMessage

from ottla.broker.cluster.controller_gate import ControllerGate
from ottla.broker.replication.partition import Partition, PartitionRole
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import NO_LEADER
from ottla.protocol.records import batches

HEALING_ROUNDS = 40


class Batch(NamedTuple):
    """A batch in a log."""

    epoch: int
    data: bytes


class Checks:
    """Remembers what the cluster has promised, and compares."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        # What was below the high watermark of a leader, at any time.
        self.committed: dict[int, Batch] = {}
        # Offsets below were deleted on request.
        self.deleted_below = 0
        self.leader_of_epoch: dict[int, int] = {}
        self._logs: dict[int, dict[int, Batch]] = {broker: {} for broker in REPLICAS}
        self._versions: dict[int, object] = {}
        self._high_watermarks: dict[int, tuple[Partition, int, int]] = {}
        # As the gates of the brokers know them, one gate for each life.
        self._controller_epochs: dict[ControllerGate, int] = {}

    # After every step

    def check(self) -> None:
        """Look at everything; AssertionError where something does not hold."""
        changed = {broker.node_id for broker in self.cluster.brokers.values() if self._reread(broker)}
        for broker in self.cluster.brokers.values():
            if broker.partition is not None:
                self._check_offsets(broker, broker.partition)
        for node_id in changed:
            epochs = [batch.epoch for _, batch in sorted(self._logs[node_id].items())]
            assert all(earlier <= later for earlier, later in pairwise(epochs)), f"epochs {epochs} on {node_id}"
        for one, other in combinations(REPLICAS, 2):
            if one in changed or other in changed:
                self._check_matching(one, other)
        self._note_committed()
        self._check_in_sync()
        self._check_acknowledged()

    def _reread(self, broker: ModelBroker) -> bool:
        """Read a log again where it may have changed; that of a stopped broker is as it was, or shorter."""
        if broker.partition is None:
            return False
        log = broker.partition.log
        version = (log, log.log_start_offset, log.log_end_offset, log.cuts)
        if version == self._versions.get(broker.node_id):
            return False
        self._versions[broker.node_id] = version
        self._logs[broker.node_id] = {offset: Batch(epoch, data) for offset, epoch, data in contents(broker.partition)}
        return True

    def _check_offsets(self, broker: ModelBroker, partition: Partition) -> None:
        log, role = partition.log, partition.role
        assert log.log_start_offset <= log.high_watermark <= log.log_end_offset, f"{log} and {log.high_watermark}"
        assert log.recovery_point <= log.log_end_offset
        if not partition.is_leader:
            self._high_watermarks.pop(broker.node_id, None)
            return
        leader = self.leader_of_epoch.setdefault(role.leader_epoch, broker.node_id)
        assert leader == broker.node_id, f"{leader} and {broker.node_id} lead in epoch {role.leader_epoch}"
        last = (partition, role.leader_epoch, log.high_watermark)
        known, epoch, high_watermark = self._high_watermarks.get(broker.node_id, last)
        if known is partition and epoch == role.leader_epoch:
            assert log.high_watermark >= high_watermark, "the high watermark moved back"
            assert log.high_watermark == high_watermark or not partition.is_under_min_isr, "committed by too few"
        self._high_watermarks[broker.node_id] = last

    def _check_matching(self, one: int, other: int) -> None:
        ones, others = self._logs[one], self._logs[other]
        common = sorted(ones.keys() & others.keys())
        alike = [offset for offset in common if ones[offset].epoch == others[offset].epoch]
        for offset in common:
            if alike and offset <= alike[-1]:
                assert ones[offset] == others[offset], f"{one} and {other} differ at {offset}"

    def _note_committed(self) -> None:
        for broker in self.cluster.brokers.values():
            if not broker.leads:
                continue
            assert broker.partition is not None
            high_watermark = broker.partition.log.high_watermark
            for offset, batch in self._logs[broker.node_id].items():
                if offset < high_watermark:
                    assert self.committed.setdefault(offset, batch) == batch, f"{offset} changed on {broker.node_id}"

    def _check_in_sync(self) -> None:
        state = self.cluster.controller.state
        assert state.leader in (*state.isr, NO_LEADER), f"{state.leader} leads and is not in {state.isr}"
        for replica in state.isr:
            missing = self.missing(self._logs[replica])
            assert not missing, f"{replica} is in the ISR {state.isr} and lacks {missing}"

    def missing(self, log: Mapping[int, Batch]) -> list[int]:
        """Return the committed offsets that a log does not have."""
        kept = ((offset, batch) for offset, batch in self.committed.items() if offset >= self.deleted_below)
        return [offset for offset, batch in kept if log.get(offset) != batch]

    def _check_acknowledged(self) -> None:
        for broker, epoch, offset, value in self.cluster.acknowledged:
            assert self.leader_of_epoch[epoch] == broker
            batch = self.committed.get(offset)
            assert batch is not None or offset < self.deleted_below, f"{offset} was acknowledged, and is not committed"
            assert batch is None or value in batch.data, f"{offset} was acknowledged, and holds something else"
        self.cluster.acknowledged.clear()

    def check_identical(self) -> None:
        """Compare all logs, byte for byte, from where all of them begin."""
        logs = [
            {offset: batch for offset, batch in log.items() if offset >= self.deleted_below}
            for log in self._logs.values()
        ]
        assert all(log == logs[0] for log in logs), "the replicas differ"

    # At events

    def check_consumed(self, broker: ModelBroker, data: bytes) -> None:
        """Compare what a consumer got with what anybody could have got before."""
        assert broker.partition is not None
        for batch in batches(data, strict=True):
            assert batch.last_offset < broker.partition.log.high_watermark, "a consumer saw what is not committed"
            assert self.committed.get(batch.base_offset) == Batch(batch.partition_leader_epoch, bytes(batch.view))

    def check_fetched(self, message: FetchedMessage) -> None:
        """Look at what a leader answers: only followers of its own epoch get anything."""
        leader = self.cluster.brokers[message.request.leader].partition
        assert leader is not None
        if message.fetched.error_code is ErrorCode.NONE:
            assert message.request.position.current_leader_epoch == leader.role.leader_epoch, "fetched in another epoch"

    def check_told(self, message: RoleMessage, before: PartitionRole) -> None:
        """Make sure that a broker heard nothing from a controller that another has replaced, as far as it knew."""
        broker = self.cluster.brokers[message.broker]
        newest = max(self._controller_epochs.get(broker.gate, 0), message.controller_epoch)
        self._controller_epochs[broker.gate] = newest
        if message.controller_epoch < newest and broker.partition is not None:
            assert broker.partition.role == before, "heard an earlier controller"


def heal(cluster: Cluster) -> None:
    """Let everything work again: all brokers run and are registered, and every message arrives."""
    for node_id, broker in cluster.brokers.items():
        if broker.partition is None:
            cluster.restart(broker)
        elif cluster.controller.live.get(node_id) != broker.broker_epoch:
            cluster.register_again(broker)
    for _ in range(HEALING_ROUNDS):
        deliver_all(cluster)
        cluster.clock.now += 1
        for broker in cluster.brokers.values():
            cluster.send_fetch(broker)


def deliver_all(cluster: Cluster) -> None:
    """Deliver what is on its way, in the order in which it was sent, and what follows from it."""
    in_flight = cluster.in_flight
    while in_flight.roles:
        cluster.deliver_role(in_flight.roles.pop(0))
    while in_flight.fetches:
        cluster.deliver_fetch(in_flight.fetches.pop(0))
    while in_flight.fetched:
        cluster.deliver_fetched(in_flight.fetched.pop(0))
    for message in [in_flight.proposals.pop(0) for _ in range(len(in_flight.proposals))]:
        cluster.deliver_proposal(message)
    while in_flight.answers:
        cluster.deliver_answer(in_flight.answers.pop(0))


def check_healed(cluster: Cluster, checks: Checks) -> None:
    """All replicas are in sync and hold the same; a producer is answered."""
    heal(cluster)
    checks.check()
    leaders = [broker for broker in cluster.brokers.values() if broker.leads]
    assert [broker.node_id for broker in leaders] == [cluster.controller.state.leader], "nobody leads, or several do"
    assert set(cluster.controller.state.isr) == set(REPLICAS), f"the ISR stays {cluster.controller.state.isr}"
    cluster.append(leaders[0], -1)
    heal(cluster)
    acknowledged = len(cluster.acknowledged)
    checks.check()
    assert acknowledged, "a producer waits for ever"
    logs = [broker.partition.log for broker in cluster.brokers.values() if broker.partition is not None]
    assert len({(log.log_end_offset, log.high_watermark) for log in logs}) == 1
    assert logs[0].high_watermark == logs[0].log_end_offset
    checks.check_identical()
