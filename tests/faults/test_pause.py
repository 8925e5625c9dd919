"""Brokers that stand still and do not know it."""

from __future__ import annotations

import pytest
from tests.faults.cluster import SESSION_TIMEOUT_S
from tests.faults.experiment import Experiment, check_valid, wait_seconds
from tests.faults.steps import ACK_GAP_MAX_S, controller_of, each_row, others, replicas_led_by, until_known
from tests.kit.broker_process import process_state


@pytest.mark.parametrize(
    "is_controller", [False, pytest.param(True, marks=pytest.mark.long_faults)], ids=["leader", "controller"]
)
@each_row
def test_f13_a_leader_that_wakes_up_acknowledges_nothing_in_its_old_epoch(
    experiment: Experiment, is_controller: bool, row: dict[str, str]
) -> None:
    """Asleep for twice its session, it still believes that it leads; what it took alone is cut away unseen."""
    cluster = experiment.cluster
    controller = cluster.state.controller()
    leader = controller if is_controller else others(controller)[0]
    experiment.start(replicas_led_by(leader, *others(leader)), **row)
    before, broker_epoch = experiment.state(), cluster.state.broker_epoch(leader)
    with experiment.fault("pause leader", f"broker {leader}", ACK_GAP_MAX_S) as fault:
        cluster.pause(leader)
        after = experiment.wait_for(lambda state: state.leader not in (-1, leader))
        assert after.leader_epoch > before.leader_epoch
        assert controller_of(cluster) != leader
        wait_seconds(SESSION_TIMEOUT_S)
        assert process_state(cluster.brokers[leader].pid) == "T"
        cluster.resume(leader)
        until_known(lambda: cluster.state.broker_epoch(leader) > broker_epoch, "it registers anew")
        fault.proof = f"the process was stopped; broker epoch {broker_epoch}, then {cluster.state.broker_epoch(leader)}"
        experiment.wait_for_acks(20)
    experiment.wait_for_full_isr()

    check_valid(experiment.finish())


@pytest.mark.long_faults
def test_f14_a_follower_leaves_the_isr_only_when_it_is_late_for_too_long(experiment: Experiment) -> None:
    """A pause of less than the lag limit changes nothing; a longer one takes it out until it has caught up."""
    cluster = experiment.cluster
    controller = cluster.state.controller()
    follower = others(controller)[0]
    leaders = others(follower)
    experiment.start(replicas_led_by(*leaders, leaders[0]))
    before = experiment.state()
    with experiment.fault("short pause of follower", f"broker {follower}", ACK_GAP_MAX_S) as fault:
        cluster.pause(follower)
        wait_seconds(1)
        cluster.resume(follower)
        fault.proof = "the process was stopped"
        experiment.wait_for_acks(20)
    assert experiment.state() == before

    with experiment.fault("long pause of follower", f"broker {follower}", ACK_GAP_MAX_S) as fault:
        cluster.pause(follower)
        shrunk = experiment.wait_for(lambda state: follower not in state.isr)
        assert shrunk.leader == before.leader
        experiment.wait_for_acks(20)
        cluster.resume(follower)
        fault.proof = f"the process was stopped, and the ISR was {sorted(shrunk.isr)}"
    experiment.wait_for_full_isr()

    check_valid(experiment.finish())
