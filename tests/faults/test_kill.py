"""Brokers that end without a word."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

import pytest
from tests.faults.cluster import BROKER_IDS, Cluster
from tests.faults.cluster_state import PartitionState, StateUnknownError
from tests.faults.experiment import Experiment, check_valid
from tests.faults.steps import (
    ACK_GAP_MAX_S,
    both_protocols,
    controller_of,
    each_row,
    kill,
    others,
    replicas_led_by,
    until_known,
    vanish,
)
from tests.kit.broker_process import process_state, topic_name
from tests.kit.waiting import until

from ottla.protocol.errors import KafkaError

TOPICS = 6
KNOCKING_INTERVAL_S = 0.02


@pytest.mark.parametrize("kills", [2, pytest.param(5, marks=pytest.mark.long_faults)])
@both_protocols
def test_f01_killing_one_leader_after_the_other_loses_nothing(experiment: Experiment, kills: int) -> None:
    """Another replica leads in a higher epoch, and the dead one comes back into the ISR.

    The first one vanishes with its guardian, so its session times out; the guardians of the others close theirs.
    """
    cluster = experiment.cluster
    controller = cluster.state.controller()
    experiment.start(replicas_led_by(*others(controller), others(controller)[0]))
    for end in [vanish, *[kill] * (kills - 1)]:
        before = experiment.state()
        with experiment.fault(f"{end.__name__} leader", f"broker {before.leader}", ACK_GAP_MAX_S) as fault:
            killed = time.monotonic()
            gone = end(cluster, before.leader)
            after = experiment.wait_for(partial(_is_led_by_another_than, before.leader))
            fault.proof = f"{gone}; another led after {time.monotonic() - killed:.2f} s"
            assert after.leader_epoch > before.leader_epoch
            experiment.wait_for_acks(20)
        cluster.start_brokers(before.leader)
        experiment.wait_for_full_isr()

    check_valid(experiment.finish())


def test_f02_killing_a_follower_costs_no_record(experiment: Experiment) -> None:
    """The ISR shrinks, acks go on, and the ISR grows again."""
    cluster = experiment.cluster
    controller = cluster.state.controller()
    follower = others(controller)[1]
    leaders = [broker for broker in BROKER_IDS if broker != follower]
    experiment.start(replicas_led_by(*leaders, leaders[0]))
    epochs = [experiment.state(partition).leader_epoch for partition in range(experiment.partitions)]
    with experiment.fault("kill follower", f"broker {follower}", ACK_GAP_MAX_S) as fault:
        gone = kill(cluster, follower)
        for partition in range(experiment.partitions):
            state = experiment.wait_for(lambda state: follower not in state.isr, partition)
            assert state.leader != follower
        fault.proof = f"{gone}, and left the ISR"
        experiment.wait_for_acks(50)
    cluster.start_brokers(follower)
    experiment.wait_for_full_isr()

    assert all(experiment.state(partition).leader_epoch >= epochs[partition] for partition in range(3))
    check_valid(experiment.finish())


def test_f03_killing_the_controller_leaves_no_topic_half_made_and_none_half_deleted(experiment: Experiment) -> None:
    """Another one takes the office in a higher epoch and ends what was begun; leaders elsewhere do not care."""
    cluster, state = experiment.cluster, experiment.cluster.state
    controller, epoch = state.controller(), state.controller_epoch()
    leaders = others(controller)
    experiment.start(replicas_led_by(*leaders, leaders[0]))
    doomed, wanted = ([topic_name() for _ in range(TOPICS)] for _ in range(2))
    for topic in doomed:
        cluster.create_topic(topic, replicas_led_by(*BROKER_IDS))
    requests = [threading.Thread(target=partial(_try, cluster.delete_topic, topic)) for topic in doomed]
    requests += [
        threading.Thread(target=partial(_try, cluster.create_topic, topic, replicas_led_by(*BROKER_IDS)))
        for topic in wanted
    ]
    with experiment.fault("kill controller", f"broker {controller}", ACK_GAP_MAX_S) as fault:
        for request in requests:
            request.start()
        until_known(lambda: any(map(state.has_topic, wanted)), "a topic is being created")
        gone = kill(cluster, controller)
        until_known(lambda: controller_of(cluster) in leaders, "another controller")
        assert state.controller_epoch() > epoch
        fault.proof = f"{gone}; controller {state.controller()} in epoch {state.controller_epoch()}"
        experiment.wait_for_acks(20)
    cluster.start_brokers(controller)
    for request in requests:
        request.join()
    for topic in (*doomed, *wanted):
        until(partial(_is_whole_or_not_there, cluster, topic), f"{topic} is whole, or gone")

    check_valid(experiment.finish())


@each_row
def test_f04_killing_all_brokers_loses_nothing(experiment: Experiment, row: dict[str, str]) -> None:
    """Whatever was acknowledged is in the page cache, and comes back with the processes."""
    cluster = experiment.cluster
    experiment.start(experiment.replicas, **row)
    with experiment.fault("kill all", "all brokers", 2 * ACK_GAP_MAX_S) as fault:
        pids = {broker: process.pid for broker, process in cluster.brokers.items()}
        for process in cluster.brokers.values():
            process.kill()
        assert not any(map(process_state, pids.values()))
        fault.proof = "no process is left"
        cluster.start_brokers(*BROKER_IDS)
        experiment.wait_for_acks(20)

    check_valid(experiment.finish())


def test_f16_a_broker_that_returns_before_its_session_ended_registers_anew(experiment: Experiment) -> None:
    """Its old registration still stands when it starts; it waits for the end of that and gets a new epoch.

    Until then nobody tells it anything, so it talks to nobody: clients cannot connect, and ask other brokers.
    """
    cluster = experiment.cluster
    experiment.start()
    leader = experiment.state().leader
    epoch = cluster.state.broker_epoch(leader)
    with experiment.fault("bounce leader", f"broker {leader}", ACK_GAP_MAX_S) as fault:
        cluster.brokers[leader].vanish()
        with _refusing_connections(cluster, leader, epoch):
            cluster.brokers[leader].start()
        until_known(lambda: cluster.state.broker_epoch(leader) > epoch, "a new broker epoch")
        fault.proof = f"broker epoch {epoch}, then {cluster.state.broker_epoch(leader)}"
        experiment.wait_for_acks(20)

    check_valid(experiment.finish())


def test_f47_a_broker_that_is_killed_again_and_again_strands_no_client(experiment: Experiment) -> None:
    """It comes back before its old session is over. Until it knows the cluster, it says nothing about it."""
    cluster = experiment.cluster
    experiment.start()
    broker = others(cluster.state.controller())[0]
    with experiment.fault("flap", f"broker {broker}", 2 * ACK_GAP_MAX_S) as fault:
        epochs = [cluster.state.broker_epoch(broker)]
        for _ in range(3):
            cluster.brokers[broker].vanish()
            cluster.start_brokers(broker)
            epochs.append(cluster.state.broker_epoch(broker))
        fault.proof = f"broker epochs {epochs}"
        experiment.wait_for_full_isr()
        experiment.wait_for_acks(20)

    check_valid(experiment.finish())


@contextmanager
def _refusing_connections(cluster: Cluster, broker: int, epoch: int) -> Iterator[None]:
    """Fail if the broker takes a connection while its registration of this epoch stands."""
    is_over = threading.Event()
    taken: list[str] = []
    address = (cluster.brokers[broker].host, cluster.brokers[broker].port)

    def knock() -> None:
        while not is_over.wait(KNOCKING_INTERVAL_S):
            with suppress(OSError, StateUnknownError):
                socket.create_connection(address, timeout=1).close()
                if cluster.state.broker_epoch(broker) == epoch:
                    taken.append(f"broker {broker} takes connections, and is still registered with epoch {epoch}")

    knocking = threading.Thread(target=knock, daemon=True)
    knocking.start()
    try:
        yield
    finally:
        is_over.set()
        knocking.join()
    assert not taken


def _is_led_by_another_than(broker: int, state: PartitionState) -> bool:
    return state.leader not in (-1, broker)


def _try(call: Callable[..., None], *arguments: object) -> None:
    with suppress(KafkaError, StateUnknownError, AssertionError):
        call(*arguments)


def _is_whole_or_not_there(cluster: Cluster, topic: str) -> bool:
    """All brokers know three partitions with leaders, or none knows the topic; ZooKeeper has it like them."""
    try:
        seen = [cluster.topic_as_seen_by(broker, topic).partitions for broker in BROKER_IDS]
    except KafkaError:
        return False
    if not cluster.state.has_topic(topic):
        return not any(seen)
    return all(len(one) == 3 and all(partition.leader_id >= 0 for partition in one) for one in seen)
