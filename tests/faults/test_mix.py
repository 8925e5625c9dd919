"""One fault after another, by chance; and none, for as long.

OTTLA_SOAK_SECONDS sets how long `make soak` does so, OTTLA_FAULT_SEED which faults come.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable

import pytest
from tests.faults.cluster import BROKER_IDS, SESSION_TIMEOUT_S
from tests.faults.experiment import Experiment, check_valid, wait_seconds
from tests.faults.steps import host, network_of

SECONDS = 90.0
SOAK_SECONDS = float(os.environ.get("OTTLA_SOAK_SECONDS", "1800"))
SEED = int(os.environ.get("OTTLA_FAULT_SEED", "1"))
HARM_SECONDS = (1.0, 2.5 * SESSION_TIMEOUT_S)


def kill_one(experiment: Experiment, chance: random.Random) -> str:
    """Kill a broker, and start it again."""
    broker = chance.choice(BROKER_IDS)
    experiment.cluster.brokers[broker].kill()
    last(chance)
    experiment.cluster.start_brokers(broker)
    return f"broker {broker} was gone"


def kill_two(experiment: Experiment, chance: random.Random) -> str:
    """Kill two brokers, one a moment after the other, and start them again in any order."""
    brokers = chance.sample(BROKER_IDS, 2)
    for broker in brokers:
        experiment.cluster.brokers[broker].kill()
        wait_seconds(chance.uniform(0, SESSION_TIMEOUT_S))
    last(chance)
    for broker in chance.sample(brokers, 2):
        experiment.cluster.start_brokers(broker)
    return f"brokers {brokers} were gone"


def flap_one(experiment: Experiment, chance: random.Random) -> str:
    """Kill a broker again as soon as it is back, three times."""
    broker = chance.choice(BROKER_IDS)
    for _ in range(3):
        experiment.cluster.brokers[broker].kill()
        experiment.cluster.start_brokers(broker)
    return f"broker {broker} was gone three times"


def restart_one(experiment: Experiment, chance: random.Random) -> str:
    """Stop a broker cleanly, and start it again."""
    broker = chance.choice(BROKER_IDS)
    assert experiment.cluster.brokers[broker].stop() == 0
    experiment.cluster.start_brokers(broker)
    return f"broker {broker} was stopped"


def pause_one(experiment: Experiment, chance: random.Random) -> str:
    """Let a broker stand still."""
    broker = chance.choice(BROKER_IDS)
    experiment.cluster.pause(broker)
    last(chance)
    experiment.cluster.resume(broker)
    return f"broker {broker} was stopped"


def isolate_one(experiment: Experiment, chance: random.Random) -> str:
    """Cut a broker off from some of the others, from ZooKeeper, or from clients."""
    network = network_of(experiment.cluster)
    broker = chance.choice(BROKER_IDS)
    peers = [*(host(one) for one in BROKER_IDS if one != broker), "zookeeper", "client"]
    cut_off = chance.sample(peers, chance.randint(1, len(peers)))
    network.cut(host(broker), *cut_off)
    last(chance)
    network.heal()
    return f"broker {broker} was cut off from {cut_off}, {network.dropped_packets()} packets dropped so far"


def restart_zookeeper(experiment: Experiment, chance: random.Random) -> str:
    """Kill ZooKeeper, and start it again."""
    experiment.cluster.zookeeper.kill()
    last(chance)
    experiment.cluster.zookeeper.start()
    return "ZooKeeper was gone"


def pause_zookeeper(experiment: Experiment, chance: random.Random) -> str:
    """Let ZooKeeper stand still."""
    experiment.cluster.zookeeper.pause()
    last(chance)
    experiment.cluster.zookeeper.resume()
    return "ZooKeeper was stopped"


def do_nothing(experiment: Experiment, chance: random.Random) -> str:
    """Leave the cluster alone."""
    last(chance)
    return "nothing to prove"


FAULTS: tuple[Callable[[Experiment, random.Random], str], ...] = (
    kill_one,
    kill_two,
    flap_one,
    restart_one,
    pause_one,
    isolate_one,
    restart_zookeeper,
    pause_zookeeper,
)


def last(chance: random.Random) -> None:
    """Let something last for a while."""
    wait_seconds(chance.uniform(*HARM_SECONDS))


@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(SECONDS, marks=[pytest.mark.long_faults, pytest.mark.timeout(1200)], id="minutes"),
        # What was begun before the end is healed and read after it.
        pytest.param(SOAK_SECONDS, marks=[pytest.mark.soak, pytest.mark.timeout(2 * SOAK_SECONDS + 1200)], id="soak"),
    ],
)
def test_f44_faults_by_chance_lose_nothing(networked_experiment: Experiment, seconds: float) -> None:
    """Periods with a fault, one in four without; sometimes the next comes before the last is overcome."""
    experiment = networked_experiment
    chance = random.Random(SEED)
    # The last fault may begin just before the end, and has to heal.
    experiment.seconds_max = seconds + 600
    experiment.start()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        harm = do_nothing if chance.random() < 0.25 else chance.choice(FAULTS)
        with experiment.fault(harm.__name__.replace("_", " "), "chance") as fault:
            fault.proof = harm(experiment, chance)
        if chance.random() < 0.5:
            experiment.wait_for_full_isr()
            experiment.wait_for_acks(20)

    check_valid(experiment.finish())


@pytest.mark.long_faults
def test_f45_without_faults_nothing_is_wrong(experiment: Experiment) -> None:
    """A healthy cluster keeps its promises, too."""
    experiment.start()
    with experiment.fault("do nothing", "nobody", ack_gap_max_s=10.0) as fault:
        wait_seconds(SECONDS)
        fault.proof = "nothing to prove"

    check_valid(experiment.finish())
