"""Machines that lose what was not yet on disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.faults.cluster import BROKER_IDS, Cluster
from tests.faults.disks import Disks
from tests.faults.experiment import Experiment, check_valid
from tests.faults.replica_logs import replica_log
from tests.faults.steps import ACK_GAP_MAX_S, controller_of, each_row, others, replicas_led_by, until_known
from tests.kit.apache_kafka import UnavailableError, skip_or_fail

from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic

ALL = 2**63 - 1
FETCH_VERSION = 12
flushed_or_not = pytest.mark.parametrize(
    "is_flushed",
    [pytest.param(True, marks=pytest.mark.long_faults, id="flushed"), pytest.param(False, id="not flushed")],
)


class PoweredCluster:
    """A cluster whose brokers have disks of their own, and what the power of each is good for."""

    def __init__(self, folder: Path, protocol: str) -> None:
        self._disks = Disks(folder)
        self.cluster = Cluster(folder, protocol=protocol)
        self._losses = dict.fromkeys(BROKER_IDS, 0)
        try:
            for broker, process in self.cluster.brokers.items():
                process.log_dir = self._disks.new(self._disk(broker)) / "data"
            self.cluster.start()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End everything."""
        self.cluster.close()
        self._disks.close()

    def cut_power(self, *brokers: int) -> None:
        """Kill brokers, and give each the disk that it would find when its power is back."""
        for broker in brokers:
            self.cluster.brokers[broker].vanish()
        for broker in brokers:
            before = self._disk(broker)
            self._losses[broker] += 1
            self.cluster.brokers[broker].log_dir = self._disks.after_power_loss(before, self._disk(broker)) / "data"

    def flush(self) -> None:
        """Force to the disks what is only in memory."""
        self._disks.flush()

    def end(self, broker: int, topic: str, partition: int = 0) -> int:
        """Return the offset behind the last batch that a broker has of a partition; 0 where there is none."""
        folder = self.cluster.brokers[broker].partition_dir(topic, partition)
        batches = replica_log("", broker, folder, ALL).batches
        return batches[-1].last_offset + 1 if batches else 0

    def _disk(self, broker: int) -> str:
        return f"disk-{broker}-{self._losses[broker]}"


@pytest.fixture
def powered(tmp_path: Path, protocol: str) -> Iterator[PoweredCluster]:
    """A cluster that can lose power."""
    try:
        made = PoweredCluster(tmp_path, protocol)
    except UnavailableError as error:
        skip_or_fail(error)
    with closing(made):
        yield made


@pytest.fixture
def experiment(powered: PoweredCluster, tmp_path: Path) -> Iterator[Experiment]:
    """A workload on it that is not started yet."""
    with closing(Experiment(powered.cluster, tmp_path)) as made:
        yield made


@each_row
def test_f24_a_leader_that_loses_power_loses_nothing_for_the_cluster(
    powered: PoweredCluster, experiment: Experiment, row: dict[str, str]
) -> None:
    """It comes back with less than it had; what it lacks was acknowledged by others as well, and it copies that."""
    cluster = powered.cluster
    leader = others(cluster.state.controller())[0]
    experiment.start(replicas_led_by(leader, *others(leader)), **row)
    experiment.wait_for_acks(100)
    with experiment.fault("power loss", f"broker {leader}", ACK_GAP_MAX_S) as fault:
        cluster.brokers[leader].vanish()
        had = powered.end(leader, experiment.topic)
        powered.cut_power(leader)
        found = powered.end(leader, experiment.topic)
        until_known(lambda: leader not in cluster.state.brokers(), "its session is over")
        experiment.wait_for_acks(20)
        cluster.start_brokers(leader)
        # What is flushed before it is acknowledged is there after the loss.
        is_proven = found < had or bool(row.get("ottla_flush_before_ack"))
        fault.proof = f"the log ended at {had}, and after the loss at {found}" if is_proven else ""
        experiment.wait_for_full_isr()
        experiment.wait_for_acks(20)

    check_valid(experiment.finish())


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(0, marks=pytest.mark.long_faults, id="the leader first"),
        pytest.param(1, id="a follower first"),
        pytest.param(2, marks=pytest.mark.long_faults, id="the other follower first"),
    ],
)
def test_f25_with_flush_before_ack_nothing_is_lost_when_all_machines_lose_power(
    powered: PoweredCluster, experiment: Experiment, first: int
) -> None:
    """Whoever starts first leads with what it had forced to its disk: everything that was acknowledged."""
    cluster = powered.cluster
    replicas = _led_by_the_controller(cluster)
    experiment.start([replicas] * experiment.partitions, ottla_flush_before_ack="true")
    experiment.wait_for_acks(100)
    with experiment.fault("power loss", "all brokers") as fault:
        _cut_all_power(powered)
        ends = {broker: powered.end(broker, experiment.topic) for broker in replicas}
        fault.proof = f"no process and no session is left; broker: end of its log {ends}"
        _start_one_by_one(experiment, replicas[first])

    check_valid(experiment.finish())


@pytest.mark.long_faults
@pytest.mark.parametrize("first", [pytest.param(0, id="the leader first"), pytest.param(1, id="a follower")])
def test_f25_without_flush_before_ack_only_the_unflushed_tail_is_lost(
    powered: PoweredCluster, experiment: Experiment, first: int
) -> None:
    """What the kernel has written is kept, wherever it starts; what it has not is lost, and seen to be (F25, F26)."""
    cluster = powered.cluster
    replicas = _led_by_the_controller(cluster)
    experiment.start([replicas] * experiment.partitions)
    experiment.wait_for_acks(50)
    flushed = dict(experiment.progress.acks)
    powered.flush()
    experiment.wait_for_acks(100)
    epoch = experiment.state().leader_epoch
    with experiment.fault("power loss", "all brokers") as fault:
        _cut_all_power(powered)
        experiment.progress.update()
        ends = [powered.end(replicas[first], experiment.topic, number) for number in range(experiment.partitions)]
        acknowledged = [experiment.progress.ends[name] for name in experiment.names]
        assert all(end >= flushed[name] for end, name in zip(ends, experiment.names, strict=True))
        is_lost = all(end < known for end, known in zip(ends, acknowledged, strict=True))
        fault.proof = f"acknowledged up to {acknowledged}, on disk up to {ends}" if is_lost else ""
        experiment.record_lost_tails(ends)
        _start_one_by_one(experiment, replicas[first])
    stale = FetchPartition(
        partition=0, current_leader_epoch=epoch, fetch_offset=acknowledged[0], partition_max_bytes=1_000_000
    )
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=1_000_000, topics=[FetchTopic(topic=experiment.topic, partitions=[stale])]
    )
    answer = cluster.request(experiment.state().leader, Api.FETCH, FETCH_VERSION, request)

    assert answer.responses[0].partitions[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
    check_valid(experiment.finish())


@flushed_or_not
def test_f46_a_second_controller_that_loses_power_while_it_takes_over_costs_no_record(
    powered: PoweredCluster, experiment: Experiment, *, is_flushed: bool
) -> None:
    """The third broker never stopped: it has all that was acknowledged, and leads although the second is back soon."""
    cluster = powered.cluster
    replicas = _led_by_the_controller(cluster)
    configs = {"ottla_flush_before_ack": "true"} if is_flushed else {}
    experiment.start([replicas] * experiment.partitions, **configs)
    experiment.wait_for_acks(100)
    leader = replicas[0]
    with experiment.fault("power loss of the next controller", f"after the kill of broker {leader}") as fault:
        cluster.brokers[leader].vanish()
        until_known(lambda: controller_of(cluster) in others(leader), "a second controller")
        second = cluster.state.controller()
        powered.cut_power(second)
        (third,) = set(BROKER_IDS) - {leader, second}
        fault.proof = f"broker {second} took over after {leader} and lost power"
        cluster.start_brokers(second)
        for partition in range(experiment.partitions):
            led = experiment.wait_for(lambda state: state.leader != -1 and state.leader != leader, partition)
            assert led.leader == third
        experiment.wait_for_acks(20)
        cluster.start_brokers(leader)
        experiment.wait_for_full_isr()
        experiment.wait_for_acks(20)

    check_valid(experiment.finish())


def _led_by_the_controller(cluster: Cluster) -> list[int]:
    leader = cluster.state.controller()
    return [leader, *others(leader)]


def _cut_all_power(powered: PoweredCluster) -> None:
    powered.cut_power(*BROKER_IDS)
    until_known(lambda: not powered.cluster.state.brokers(), "all sessions are over")


def _start_one_by_one(experiment: Experiment, first: int) -> None:
    experiment.cluster.start_brokers(first)
    experiment.wait_for(lambda state: state.leader == first)
    experiment.cluster.start_brokers(*others(first))
    experiment.wait_for_full_isr()
    experiment.wait_for_acks(100)
