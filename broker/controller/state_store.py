"""The state nodes of partitions. The controller reads, creates and changes many at a time.

For each member of the ISR, a node names the registration of the broker that was in sync, by its epoch. A write keeps
the epochs of members that stay, and a new member gets the epoch that the controller knows. So a restart that no
controller has handled yet shows in the node, however often the node is written meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import structlog
from msgspec import UNSET

from ottla.broker.cluster import znodes
from ottla.broker.cluster.operations import BadVersionError, Create, MultiError, NodeExistsError, NodeStat, SetData
from ottla.broker.cluster.zookeeper import ZooKeeper
from ottla.broker.controller.election import Fence
from ottla.broker.controller.partition_states import RECOVERED, LeaderAndIsr
from ottla.protocol.identifiers import UNKNOWN_BROKER_EPOCH, TopicPartition

log = structlog.get_logger(__name__)

# Takes the content of a state node and returns the new one: the same to change nothing, None to leave the node out.
Change = Callable[[TopicPartition, LeaderAndIsr], LeaderAndIsr | None]

# Besides the controller of this term, only people change state nodes.
_ATTEMPTS_MAX: Final = 10


class StateStore:
    """Reads and writes state nodes in one term."""

    def __init__(self, zookeeper: ZooKeeper, fence: Fence, broker_epoch: Callable[[int], int]) -> None:
        """`broker_epoch` returns the epoch of a live broker, and UNKNOWN_BROKER_EPOCH for others."""
        self._zookeeper = zookeeper
        self._fence = fence
        self._broker_epoch = broker_epoch

    def read(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, LeaderAndIsr]:
        """Return the states of those partitions that have one."""
        paths = [znodes.state_path(*partition) for partition in partitions]
        states: dict[TopicPartition, LeaderAndIsr] = {}
        for partition, path, node in zip(partitions, paths, self._zookeeper.read_many(paths), strict=True):
            if node is None:
                continue
            try:
                content = znodes.PartitionStateNode.decode(node.data, path)
            except znodes.MalformedNodeError as error:
                log.error("partition_state_malformed", partition=str(partition), reason=str(error))
                continue
            states[partition] = self._state(content, node.stat)
        return states

    def create(self, wanted: Mapping[TopicPartition, LeaderAndIsr]) -> dict[TopicPartition, LeaderAndIsr]:
        """Create the state nodes of new partitions; return those that now exist with the wanted state."""
        wanted = {partition: self._with_lives(state) for partition, state in wanted.items()}
        self._fence.ensure(sorted({znodes.partitions_path(partition.topic) for partition in wanted}))
        multis = [
            [Create(znodes.partition_path(*partition)), Create(znodes.state_path(*partition), self._content(state))]
            for partition, state in wanted.items()
        ]
        created: dict[TopicPartition, LeaderAndIsr] = {}
        doubtful: list[TopicPartition] = []
        for (partition, state), outcome in zip(wanted.items(), self._fence.multi_many(multis), strict=True):
            if isinstance(outcome, MultiError):
                if not isinstance(outcome.reason, NodeExistsError):
                    raise outcome.reason
                doubtful.append(partition)
            else:
                created[partition] = state
        return created | self._settle(wanted, doubtful)

    def update(
        self,
        partitions: Iterable[TopicPartition],
        change: Change,
        known: Mapping[TopicPartition, LeaderAndIsr] | None = None,
    ) -> dict[TopicPartition, LeaderAndIsr]:
        """Change state nodes with `change`; return the states that it returned, with their new versions.

        The nodes are expected to hold what is `known` of them. If they do not, the write fails and they are read again.
        """
        results: dict[TopicPartition, LeaderAndIsr] = {}
        remaining = list(partitions)
        states = {each: known[each] for each in remaining if each in known} if known is not None else {}
        states |= self.read([each for each in remaining if each not in states])
        for _ in range(_ATTEMPTS_MAX):
            writes: dict[TopicPartition, LeaderAndIsr] = {}
            for partition, state in states.items():
                if state.controller_epoch > self._fence.epoch:
                    log.error("partition_state_of_newer_controller", partition=str(partition), state=state)
                    continue
                changed = change(partition, state)
                if changed == state:
                    results[partition] = state
                elif changed is not None:
                    writes[partition] = replace(changed, controller_epoch=self._fence.epoch)
            remaining = self._write(writes, results)
            if not remaining:
                return results
            states = self.read(remaining)
        log.error("partition_states_keep_changing", partitions=[str(partition) for partition in remaining])
        return results

    def replace(self, wanted: Mapping[TopicPartition, LeaderAndIsr]) -> dict[TopicPartition, LeaderAndIsr]:
        """Write states if the nodes are still at the given versions; return those written, with their new versions."""
        writes = {partition: replace(state, controller_epoch=self._fence.epoch) for partition, state in wanted.items()}
        results: dict[TopicPartition, LeaderAndIsr] = {}
        self._write(writes, results)
        return results

    def _write(
        self, writes: Mapping[TopicPartition, LeaderAndIsr], results: dict[TopicPartition, LeaderAndIsr]
    ) -> list[TopicPartition]:
        """Write states at the versions that were read; return the partitions that others have changed meanwhile."""
        writes = {partition: self._with_lives(state) for partition, state in writes.items()}
        multis = [
            [SetData(znodes.state_path(*partition), self._content(state), state.partition_epoch)]
            for partition, state in writes.items()
        ]
        conflicts: list[TopicPartition] = []
        for (partition, state), outcome in zip(writes.items(), self._fence.multi_many(multis), strict=True):
            if not isinstance(outcome, MultiError):
                results[partition] = replace(state, partition_epoch=state.partition_epoch + 1)
            elif isinstance(outcome.reason, BadVersionError):
                conflicts.append(partition)
            else:
                log.error("partition_state_not_written", partition=str(partition), reason=str(outcome.reason))
        return self._still_wanted(writes, conflicts, results)

    def _still_wanted(
        self,
        writes: Mapping[TopicPartition, LeaderAndIsr],
        conflicts: Sequence[TopicPartition],
        results: dict[TopicPartition, LeaderAndIsr],
    ) -> list[TopicPartition]:
        """Tell real conflicts from writes that succeeded although their answers were lost."""
        left: list[TopicPartition] = []
        current = self.read(conflicts) if conflicts else {}
        for partition in conflicts:
            wanted = writes[partition]
            done = replace(wanted, partition_epoch=wanted.partition_epoch + 1)
            if current.get(partition) == done:
                results[partition] = done
            else:
                left.append(partition)
        return left

    def _settle(
        self, wanted: Mapping[TopicPartition, LeaderAndIsr], doubtful: Sequence[TopicPartition]
    ) -> dict[TopicPartition, LeaderAndIsr]:
        """Check partitions whose nodes existed: from our own first try, with an empty parent, or with another state."""
        settled: dict[TopicPartition, LeaderAndIsr] = {}
        found = self.read(doubtful) if doubtful else {}
        for partition in doubtful:
            if partition not in found:
                try:
                    self._fence.write(Create(znodes.state_path(*partition), self._content(wanted[partition])))
                    settled[partition] = wanted[partition]
                except NodeExistsError:
                    log.error("partition_state_not_readable", partition=str(partition))
            elif found[partition] == wanted[partition]:
                settled[partition] = wanted[partition]
            else:
                log.error("partition_state_exists", partition=str(partition), state=found[partition])
        return settled

    def _content(self, state: LeaderAndIsr) -> bytes:
        return znodes.PartitionStateNode(
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            controller_epoch=self._fence.epoch,
            isr=list(state.isr),
            leader_recovery_state=UNSET if state.leader_recovery_state == RECOVERED else state.leader_recovery_state,
            isr_broker_epochs=[state.lives[broker] for broker in state.isr],
        ).encode()

    def _with_lives(self, state: LeaderAndIsr) -> LeaderAndIsr:
        """Complete the broker epochs of a state before it is written; brokers that left the ISR have none."""
        return replace(
            state, lives={broker: state.lives.get(broker, self._broker_epoch(broker)) for broker in state.isr}
        )

    def _state(self, content: znodes.PartitionStateNode, stat: NodeStat) -> LeaderAndIsr:
        recovery = content.leader_recovery_state
        return LeaderAndIsr(
            leader=content.leader,
            leader_epoch=content.leader_epoch,
            isr=tuple(content.isr),
            controller_epoch=content.controller_epoch,
            partition_epoch=stat.version,
            leader_recovery_state=recovery if isinstance(recovery, int) else RECOVERED,
            lives=self._lives(content, stat),
        )

    def _lives(self, content: znodes.PartitionStateNode, stat: NodeStat) -> dict[int, int]:
        epochs = content.isr_broker_epochs
        if isinstance(epochs, list) and len(epochs) == len(content.isr):
            return dict(zip(content.isr, epochs, strict=True))
        # Kafka has written this node. A broker epoch is a transaction number too, so a broker that registered after the
        # node was written had another registration then.
        registered = {broker: self._broker_epoch(broker) for broker in content.isr}
        return {broker: epoch if epoch < stat.mzxid else UNKNOWN_BROKER_EPOCH for broker, epoch in registered.items()}
