"""Brokers that live and do not reach each other, or do not reach ZooKeeper."""

from __future__ import annotations

from itertools import count

import pytest
from tests.faults.checker.anomaly import Rule
from tests.faults.checker.history import Fail, Info, Invoke
from tests.faults.cluster import LAG_LIMIT_S, SESSION_TIMEOUT_S
from tests.faults.experiment import Experiment, check_valid, wait_seconds
from tests.faults.live import batch_of
from tests.faults.steps import (
    ACK_GAP_MAX_S,
    controller_of,
    host,
    kill,
    network_of,
    others,
    replicas_led_by,
    until_known,
)
from tests.kit.waiting import until

from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

ACKS_ALL = -1
PRODUCE_VERSION = 9
PROBE_TIMEOUT_MS = 500
OFFLINE = -1


def test_f05_a_leader_without_followers_acknowledges_nothing(networked_experiment: Experiment) -> None:
    """It is the controller and takes them out of the ISR; with a single replica in sync it refuses to append."""
    experiment, cluster = networked_experiment, networked_experiment.cluster
    network = network_of(cluster)
    leader = cluster.state.controller()
    followers = others(leader)
    experiment.start(replicas_led_by(leader, *followers))
    with experiment.fault("isolate leader from followers", f"broker {leader}", 2 * ACK_GAP_MAX_S) as fault:
        network.cut(host(leader), *map(host, followers))
        experiment.wait_for(lambda state: state.isr == {leader})
        attempts = count()
        until(lambda: is_refused(experiment, leader, next(attempts)), "the leader refuses to append")
        acks = acks_of(experiment, 0)
        wait_seconds(1)
        assert acks_of(experiment, 0) == acks
        assert experiment.state().leader == leader
        network.heal()
        fault.proof = f"{network.dropped_packets()} packets dropped, and the ISR was the leader alone"
        experiment.wait_for_acks(20)

    check_valid(experiment.finish())


@pytest.mark.long_faults
def test_f05_a_leader_cut_off_from_followers_and_controller_changes_no_isr(networked_experiment: Experiment) -> None:
    """It reaches ZooKeeper, and that is not enough: the controller alone writes the ISR."""
    experiment, cluster = networked_experiment, networked_experiment.cluster
    network = network_of(cluster)
    controller = cluster.state.controller()
    leader = others(controller)[0]
    experiment.start(replicas_led_by(leader, *others(leader)))
    before = experiment.state()
    with experiment.fault("isolate leader from brokers", f"broker {leader}", 2 * ACK_GAP_MAX_S) as fault:
        network.cut(host(leader), *map(host, others(leader)))
        wait_seconds(2 * LAG_LIMIT_S)
        acks = acks_of(experiment, 0)
        wait_seconds(1)
        assert acks_of(experiment, 0) == acks
        assert experiment.state() == before
        network.heal()
        fault.proof = f"{network.dropped_packets()} packets dropped"
        experiment.wait_for_acks(20)

    check_valid(experiment.finish())


@pytest.mark.parametrize(
    "is_controller", [False, pytest.param(True, marks=pytest.mark.long_faults)], ids=["plain", "controller"]
)
def test_f06_f16_a_leader_without_zookeeper_is_replaced(networked_experiment: Experiment, is_controller: bool) -> None:
    """Others lead when its session is over; it comes back with a new broker epoch, and follows."""
    experiment, cluster = networked_experiment, networked_experiment.cluster
    network = network_of(cluster)
    controller = cluster.state.controller()
    leader = controller if is_controller else others(controller)[0]
    experiment.start(replicas_led_by(leader, *others(leader)))
    before, broker_epoch = experiment.state(), cluster.state.broker_epoch(leader)
    with experiment.fault("isolate leader from ZooKeeper", f"broker {leader}", ACK_GAP_MAX_S) as fault:
        network.cut(host(leader), "zookeeper")
        after = experiment.wait_for(lambda state: state.leader not in (OFFLINE, leader))
        assert after.leader_epoch > before.leader_epoch
        assert controller_of(cluster) != leader
        experiment.wait_for_acks(20)
        wait_seconds(SESSION_TIMEOUT_S)
        network.heal()
        until_known(lambda: cluster.state.broker_epoch(leader) > broker_epoch, "it registers anew")
        fault.proof = (
            f"{network.dropped_packets()} packets dropped; broker epoch {broker_epoch}, then "
            f"{cluster.state.broker_epoch(leader)}"
        )
    experiment.wait_for_full_isr()

    check_valid(experiment.finish())


def test_f12_a_partition_whose_last_replica_in_sync_dies_stays_offline(networked_experiment: Experiment) -> None:
    """Nobody who was out of sync may lead; when the last one returns, nothing is lost."""
    experiment, cluster = networked_experiment, networked_experiment.cluster
    network = network_of(cluster)
    leader = cluster.state.controller()
    followers = others(leader)
    experiment.start(replicas_led_by(leader, *followers))
    with experiment.fault("ISR of one, then kill", f"broker {leader}", 2 * ACK_GAP_MAX_S) as fault:
        network.cut(host(leader), *map(host, followers))
        experiment.wait_for(lambda state: state.isr == {leader})
        gone = kill(cluster, leader)
        network.heal()
        offline = experiment.wait_for(lambda state: state.leader == OFFLINE)
        assert offline.isr == {leader}
        until_known(lambda: controller_of(cluster) in followers, "another controller")
        # The others go on with what they have.
        experiment.wait_for_acks(20, 1, 2)
        assert experiment.state().leader == OFFLINE

        cluster.start_brokers(leader)
        experiment.wait_for(lambda state: state.leader == leader)
        fault.proof = f"{network.dropped_packets()} packets dropped; {gone}; the partition was offline"
        experiment.wait_for_acks(20)

    check_valid(experiment.finish())


@pytest.mark.long_faults
def test_f12_an_unclean_election_loses_records_and_nothing_else(networked_experiment: Experiment) -> None:
    """Where it is allowed, what the last replica took alone is lost, and seen to be; all replicas agree afterwards."""
    experiment, cluster = networked_experiment, networked_experiment.cluster
    network = network_of(cluster)
    leader = cluster.state.controller()
    followers = others(leader)
    experiment.start(
        replicas_led_by(leader, *followers), min_insync_replicas="1", unclean_leader_election_enable="true"
    )
    with experiment.fault("ISR of one, then kill", f"broker {leader}", 2 * ACK_GAP_MAX_S) as fault:
        network.cut(host(leader), *map(host, followers))
        alone = experiment.wait_for(lambda state: state.isr == {leader})
        experiment.wait_for_acks(20, 0)
        gone = kill(cluster, leader)
        network.heal()
        elected = experiment.wait_for(lambda state: state.leader in followers)
        assert elected.leader_epoch > alone.leader_epoch
        experiment.wait_for_acks(20)
        cluster.start_brokers(leader)
        fault.proof = f"{network.dropped_packets()} packets dropped; {gone}"
    report = experiment.finish()

    assert Rule.LOST_ACKED_WRITE in report.broken_rules
    assert report.broken_rules.isdisjoint({Rule.DIVERGENCE, Rule.EPOCH_BACK, Rule.TWO_LEADERS, Rule.UNCOMMITTED_READ})
    assert {anomaly.partition for anomaly in report.anomalies} == {experiment.names[0]}


def acks_of(experiment: Experiment, partition: int) -> int:
    """Return how many sends to a partition were acknowledged so far."""
    experiment.progress.update()
    return experiment.progress.acks[experiment.names[partition]]


def is_refused(experiment: Experiment, leader: int, attempt: int) -> bool:
    """Send one record to partition 0, as one more worker of the history; say whether too few replicas were in sync.

    A leader that has not learned of the new ISR yet appends it, and lets it wait.
    """
    value = f"probe-{attempt}"
    experiment.record(Invoke(worker="probe", op=attempt, partition=experiment.names[0], value=value))
    partition = PartitionProduceData(index=0, records=memoryview(batch_of(value.encode())))
    topic = TopicProduceData(name=experiment.topic, partition_data=[partition])
    request = ProduceRequest(acks=ACKS_ALL, timeout_ms=PROBE_TIMEOUT_MS, topic_data=[topic])
    response: ProduceResponse = experiment.cluster.request(leader, Api.PRODUCE, PRODUCE_VERSION, request)
    code = ErrorCode.of(response.responses[0].partition_responses[0].error_code)
    if code is ErrorCode.NOT_ENOUGH_REPLICAS:
        experiment.record(Fail(worker="probe", op=attempt, error=code.name))
        return True
    assert code is not ErrorCode.NONE
    experiment.record(Info(worker="probe", op=attempt, error=code.name))
    return False
