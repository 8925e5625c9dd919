"""Networks that fail in part: for some, in one direction, or now and then."""

from __future__ import annotations

import pytest
from tests.faults.cluster import BROKER_IDS, LAG_LIMIT_S, SESSION_TIMEOUT_S
from tests.faults.experiment import Experiment, check_valid, wait_seconds
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

pytestmark = pytest.mark.long_faults

LOST_SHARE = 0.05
LASTING_S = 8.0


def test_f07_a_controller_cut_off_from_everybody_is_replaced(networked_experiment: Experiment) -> None:
    """It may believe in its office; nobody listens to it, then or later."""
    experiment, cluster = networked_experiment, networked_experiment.cluster
    network = network_of(cluster)
    controller, epoch = cluster.state.controller(), cluster.state.controller_epoch()
    leaders = others(controller)
    experiment.start(replicas_led_by(*leaders, leaders[0]))
    with experiment.fault("isolate controller", f"broker {controller}", ACK_GAP_MAX_S) as fault:
        network.cut(host(controller), *map(host, leaders), "zookeeper", "client")
        until_known(lambda: controller_of(cluster) in leaders, "another controller")
        assert cluster.state.controller_epoch() > epoch
        experiment.wait_for_acks(20)
        network.heal()
        fault.proof = f"{network.dropped_packets()} packets dropped; controller {cluster.state.controller()}"
    experiment.wait_for_full_isr()
    assert cluster.state.controller() in leaders

    check_valid(experiment.finish())


def test_f08_clients_that_do_not_reach_the_leader_find_its_successor(networked_experiment: Experiment) -> None:
    """First they are cut off from it, then it dies: what they try again is stored once."""
    experiment, cluster = networked_experiment, networked_experiment.cluster
    network = network_of(cluster)
    leader = others(cluster.state.controller())[0]
    experiment.start(replicas_led_by(leader, *others(leader)))
    with experiment.fault("isolate clients, then kill leader", f"broker {leader}", 2 * ACK_GAP_MAX_S) as fault:
        network.cut("client", host(leader))
        wait_seconds(SESSION_TIMEOUT_S)
        gone = kill(cluster, leader)
        experiment.wait_for(lambda state: state.leader not in (-1, leader))
        experiment.wait_for_acks(20)
        network.heal()
        fault.proof = f"{network.dropped_packets()} packets dropped; {gone}"
    cluster.start_brokers(leader)
    experiment.wait_for_full_isr()

    check_valid(experiment.finish())


def test_f09_two_brokers_that_see_only_the_third_stay_consistent(networked_experiment: Experiment) -> None:
    """Each of them has a majority; after healing all goes on."""
    experiment, cluster = networked_experiment, networked_experiment.cluster
    network = network_of(cluster)
    one, other = others(cluster.state.controller())
    experiment.start()
    with experiment.fault("cut one link", f"brokers {one} and {other}", 2 * ACK_GAP_MAX_S) as fault:
        network.cut(host(one), host(other))
        wait_seconds(LASTING_S)
        network.heal()
        fault.proof = f"{network.dropped_packets()} packets dropped"
        experiment.wait_for_acks(20)

    check_valid(experiment.finish())


@pytest.mark.parametrize("is_deaf", [True, False], ids=["deaf", "mute"])
def test_f10_a_leader_that_others_reach_in_one_direction_only(networked_experiment: Experiment, is_deaf: bool) -> None:
    """It hears nobody, or nobody hears it; no leader stays without followers, and nothing is lost."""
    experiment, cluster = networked_experiment, networked_experiment.cluster
    network = network_of(cluster)
    leader, follower = others(cluster.state.controller())
    experiment.start(replicas_led_by(leader, *others(leader)))
    # When the follower is back, the leader proposes it, and from then on it has a connection to the controller. Without
    # one, a leader that hears nobody could not propose anything.
    kill(cluster, follower)
    cluster.start_brokers(follower)
    experiment.wait_for_full_isr()
    with experiment.fault("one-way cut", f"broker {leader}", 2 * ACK_GAP_MAX_S) as fault:
        for other in (*map(host, others(leader)), "zookeeper"):
            network.cut_one_way(*((other, host(leader)) if is_deaf else (host(leader), other)))
        experiment.wait_for(lambda state: state.leader not in (-1, leader))
        wait_seconds(LAG_LIMIT_S)
        network.heal()
        fault.proof = f"{network.dropped_packets()} packets dropped"
        experiment.wait_for_acks(20)

    check_valid(experiment.finish())


def test_f11_lost_packets_slow_a_cluster_down_and_no_more(networked_experiment: Experiment) -> None:
    """One in twenty does not arrive, at every broker; sends are acknowledged all the time."""
    experiment, cluster = networked_experiment, networked_experiment.cluster
    network = network_of(cluster)
    experiment.start()
    with experiment.fault("packet loss", "all brokers", ACK_GAP_MAX_S) as fault:
        for broker in BROKER_IDS:
            network.lose(host(broker), LOST_SHARE)
        wait_seconds(LASTING_S)
        experiment.wait_for_acks(50)
        network.heal()
        fault.proof = f"{network.dropped_packets()} packets dropped"

    check_valid(experiment.finish())
