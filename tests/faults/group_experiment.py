"""An experiment with a consumer group: four members read what is sent, while its coordinator comes to harm."""

from __future__ import annotations

import signal
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.faults.checker.history import Commit, Event, HistoryWriter, Own
from tests.faults.cluster import BROKER_IDS, Cluster
from tests.faults.cluster_state import PartitionState
from tests.faults.experiment import FIGURES, Experiment, Fault
from tests.faults.progress import Progress
from tests.faults.steps import ACK_GAP_MAX_S
from tests.kit.guarded_process import GuardedProcess
from tests.kit.waiting import until

from ottla.broker.coordination.placement import CONSUMER_OFFSETS
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic

MEMBERS = 4
PARTITIONS = 6
FIND_COORDINATOR_VERSION, OFFSET_FETCH_VERSION = 3, 7


class GroupProgress(Progress):
    """How far the members have come."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.commits: Counter[str] = Counter()
        self.generation = -1
        self.owners: dict[str, str] = {}

    def _take(self, event: Event) -> None:
        match event:
            case Commit():
                self.commits[event.partition] += 1
            case Own():
                if event.generation > self.generation:
                    self.owners.clear()
                self.generation = max(self.generation, event.generation)
                if event.generation == self.generation:
                    self.owners.update(dict.fromkeys(event.partitions, event.worker))
            case _:
                super()._take(event)


class GroupExperiment(Experiment):
    """Producers, consumers without a group, and a group whose members own a part of the partitions each."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        super().__init__(cluster, folder, partitions=PARTITIONS, rate=40)
        self._paths["members"] = folder / "history-members.jsonl"
        self._paths["offsets"] = folder / "history-offsets.jsonl"
        self._offsets = HistoryWriter(self._paths["offsets"])
        self._members: GuardedProcess | None = None
        self.group_id = f"members-{uuid.uuid4().hex}"
        self.group = GroupProgress(self._paths["members"])

    def start(self, replicas: Sequence[Sequence[int]] = (), **configs: str) -> None:
        """Start the workload, then the members, and wait until they share the partitions and have committed."""
        super().start(replicas, **configs)
        self._members = self._client(
            "members", "tests.faults.workload.group", "--group", self.group_id, "--members", str(MEMBERS)
        )
        until(self._is_shared, "all members own something")
        self.wait_for_commits(3)

    def coordinator(self) -> int:
        """Return the broker that coordinates the group, as ZooKeeper has it."""
        return self.coordinator_state().leader

    def coordinator_state(self) -> PartitionState:
        """Return the state of the partition that the group is kept in."""
        return self.cluster.state.partition(CONSUMER_OFFSETS, 0)

    def wait_for_coordinator_other_than(self, broker: int) -> int:
        """Wait until another broker leads the group's partition; ask it what it knows, before members tell it more."""
        state = self.cluster.wait_for_partition(CONSUMER_OFFSETS, 0, lambda state: state.leader not in (-1, broker))
        self.committed()
        return state.leader

    def wait_for_coordinator_in_sync(self) -> None:
        """Wait until all brokers have all that the group's partition has."""
        self.cluster.wait_for_full_isr(CONSUMER_OFFSETS, [BROKER_IDS])

    def wait_for_commits(self, count: int) -> None:
        """Wait for so many more commits in every partition."""
        self.group.update()
        before = dict(self.group.commits)

        def are_there() -> bool:
            self._check_members()
            self.group.update()
            return all(self.group.commits[name] >= before.get(name, 0) + count for name in self.names)

        until(are_there, f"{count} more commits in every partition")

    @contextmanager
    def coordinator_fault(self, name: str, broker: int) -> Iterator[Fault]:
        """Do harm to the coordinator; it is over when the members have committed again in every partition."""
        self.committed()
        began = time.monotonic()
        with self.fault(name, f"broker {broker}", ACK_GAP_MAX_S) as harm:
            yield harm
            self.wait_for_commits(2)
        FIGURES.append(
            f"{name} of broker {broker}: all members had committed again after {time.monotonic() - began:.2f} s"
        )
        self.committed()

    def committed(self) -> dict[str, int]:
        """Ask the coordinator for the group's positions, and write them down."""
        return until(self._fetch_offsets, "the coordinator tells the group's offsets", not_yet=KafkaError)

    def stop_workload(self) -> None:
        """End the producers, wait until the group has committed all that is there, and end the members."""
        super().stop_workload()
        ends = self.progress.ends

        def is_at_the_end() -> bool:
            self._check_members()
            return all(offset >= ends.get(name, 0) for name, offset in self.committed().items())

        until(is_at_the_end, f"the group has committed {ends}")
        members, self._members = self._members, None
        assert members is not None
        assert members.end(signal.SIGTERM) == 0, self._said()
        self.committed()

    def close(self) -> None:
        """End what still runs."""
        super().close()
        self._offsets.close()
        if self._members is not None:
            self._members.end(signal.SIGKILL)

    def _fetch_offsets(self) -> dict[str, int]:
        broker = self.coordinator()
        found = self.cluster.request(
            broker,
            Api.FIND_COORDINATOR,
            FIND_COORDINATOR_VERSION,
            FindCoordinatorRequest(key=self.group_id, key_type=0),
        )
        if found.error_code != ErrorCode.NONE:
            raise KafkaError(ErrorCode.of(found.error_code))
        invoked_ns = time.monotonic_ns()
        wanted = OffsetFetchRequestTopic(name=self.topic, partition_indexes=list(range(self.partitions)))
        request = OffsetFetchRequest(group_id=self.group_id, topics=[wanted])
        answer = self.cluster.request(found.node_id, Api.OFFSET_FETCH, OFFSET_FETCH_VERSION, request)
        if answer.error_code != ErrorCode.NONE:
            raise KafkaError(ErrorCode.of(answer.error_code))
        offsets = {self.names[row.partition_index]: row.committed_offset for row in answer.topics[0].partitions}
        for name, offset in offsets.items():
            self._offsets.write(
                Commit(
                    worker=f"broker {found.node_id}",
                    group=self.group_id,
                    partition=name,
                    offset=offset,
                    invoked_ns=invoked_ns,
                )
            )
        return offsets

    def _is_shared(self) -> bool:
        self._check_members()
        self.group.update()
        return set(self.group.owners) == set(self.names) and len(set(self.group.owners.values())) >= MEMBERS

    def _check_members(self) -> None:
        assert self._members is not None
        assert self._members.poll() is None, self._said()

    def _said(self) -> str:
        return (self._folder / "members.log").read_text()
